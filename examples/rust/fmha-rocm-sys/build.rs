// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds libfmha_rocm: below `$FMHA_ROCM_PREFIX`, else as `pkg-config fmha_rocm` says.
//!
//! Crates that depend on this one get `DEP_FMHA_ROCM_LIBDIR`, for an rpath of their programs.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ABI this crate was written for: fields were appended since, at most.
const AT_LEAST: &str = "0.1";

struct Installed {
    libdir: PathBuf,
    include: PathBuf,
    emulator: PathBuf,
}

fn main() {
    for variable in ["FMHA_ROCM_PREFIX", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let found = match env::var_os("FMHA_ROCM_PREFIX") {
        Some(prefix) => below(Path::new(&prefix)),
        None => by_pkg_config(),
    };
    let found = found.unwrap_or_else(|why| {
        eprintln!(
            "{why}\nSet FMHA_ROCM_PREFIX to where fmha_rocm is installed, or PKG_CONFIG_PATH to the folder of its \
             fmha_rocm.pc."
        );
        std::process::exit(1)
    });
    let libdir = found.libdir.display();
    println!("cargo:rustc-link-search=native={libdir}");
    println!("cargo:rustc-link-lib=dylib=fmha_rocm");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libdir}"); // of this crate's own tests
    println!("cargo:libdir={libdir}");
    println!("cargo:rustc-env=FMHA_ROCM_INCLUDE={}", found.include.display());
    let device = found.emulator.join("libamdhip64.so.6");
    println!("cargo:rerun-if-changed={}", found.emulator.display());
    if device.is_file() {
        println!("cargo:rustc-env=FMHA_ROCM_EMULATOR={}", device.display());
    }
}

/// lib, lib64 or lib/<triplet> of a prefix. That of a wheel is its folder pyfa_rocm.
fn below(prefix: &Path) -> Result<Installed, String> {
    let mut folders = vec![prefix.join("lib"), prefix.join("lib64")];
    folders.extend(prefix.join("lib").read_dir().into_iter().flatten().flatten().map(|entry| entry.path()));
    let libdir =
        folders.into_iter().find(|folder| folder.join("libfmha_rocm.so").is_file()).ok_or_else(|| {
            format!(
                "FMHA_ROCM_PREFIX: got {}, expected an installed prefix; it has no lib/libfmha_rocm.so",
                prefix.display()
            )
        })?;
    let emulator = libdir.join("fmha_rocm").join("emulator");
    Ok(Installed { libdir, include: prefix.join("include"), emulator })
}

fn by_pkg_config() -> Result<Installed, String> {
    let variable = |name: &str| pkg_config(&[&format!("--variable={name}")]).map(PathBuf::from);
    pkg_config(&["--print-errors", "--exists", &format!("fmha_rocm >= {AT_LEAST}")])?;
    Ok(Installed {
        libdir: variable("libdir")?,
        include: variable("includedir")?,
        emulator: variable("emulator")?,
    })
}

fn pkg_config(arguments: &[&str]) -> Result<String, String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let mut command = Command::new(program);
    command.args(arguments);
    if !arguments.contains(&"--exists") {
        command.arg("fmha_rocm");
    }
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{command:?}: {}", text(&output.stderr)))
    }
}
