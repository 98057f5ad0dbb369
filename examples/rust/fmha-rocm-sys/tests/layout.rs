// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structs, constants and functions of this crate against the installed header: a C compiler says what
//! they are in C, and the header's text that none is missing here.
use fmha_rocm_sys::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, mem, process};

const INCLUDE: &str = env!("FMHA_ROCM_INCLUDE");

struct Layout {
    name: &'static str,
    size: usize,
    align: usize,
    fields: Vec<(&'static str, usize, usize)>, // name, offset, size
}

/// Layout of a struct; does not compile if a field is left out or misspelt.
macro_rules! layout {
    ($name:ident { $($field:ident),* }) => {{
        #[allow(dead_code)]
        fn all_fields(value: $name) {
            let $name { $($field: _),* } = value;
        }
        fn size_behind<T>(_: *const T) -> usize {
            mem::size_of::<T>()
        }
        let value = mem::MaybeUninit::<$name>::uninit();
        let base = value.as_ptr();
        let mut fields = Vec::new();
        $(
            // SAFETY: the address of a field inside the allocation; nothing is read.
            let address = unsafe { std::ptr::addr_of!((*base).$field) };
            fields.push((stringify!($field), address as usize - base as usize, size_behind(address)));
        )*
        Layout {
            name: stringify!($name),
            size: mem::size_of::<$name>(),
            align: mem::align_of::<$name>(),
            fields,
        }
    }};
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(fmha_tensor { data, stride_batch, stride_seqlen, stride_head }),
        layout!(fmha_lse { data, stride_batch, stride_head }),
        layout!(fmha_bias { data, stride_batch, stride_head, stride_seqlen }),
        layout!(fmha_randval { data, stride_batch, stride_head, stride_seqlen }),
        layout!(fmha_bias_grad { data, stride_batch, stride_head, stride_seqlen }),
        layout!(fmha_fwd_params {
            struct_size,
            dtype,
            batch,
            seqlen_q,
            seqlen_k,
            nhead_q,
            nhead_k,
            hdim_q,
            hdim_v,
            softmax_scale,
            mask,
            window_left,
            window_right,
            q,
            k,
            v,
            o,
            lse,
            o_dtype,
            softcap,
            bias,
            alibi_slopes,
            alibi_stride_batch,
            cu_seqlens_q,
            cu_seqlens_k,
            seqused_q,
            seqused_k,
            total_q,
            total_k,
            p_drop,
            kernel,
            philox_seed,
            philox_offset,
            philox_seed_offset,
            randval,
            q_descale,
            k_descale,
            v_descale,
            reserved,
            workspace,
            workspace_bytes,
            flags,
            sinks
        }),
        layout!(fmha_bwd_params {
            struct_size,
            grad_dtype,
            fwd,
            dout,
            dq,
            dk,
            dv,
            accumulate,
            deterministic,
            kernel,
            reserved,
            workspace,
            workspace_bytes,
            flags,
            dbias
        }),
        layout!(fmha_decode_params {
            struct_size,
            kernel,
            fwd,
            cache,
            leftpad_k,
            sinks,
            num_splits,
            seqlen_new,
            lse_base,
            reserved,
            workspace,
            workspace_bytes,
            flags
        }),
        layout!(fmha_cache_tensor { data, stride_page, stride_token, stride_head }),
        layout!(fmha_cache_scale { data, stride_page, stride_head }),
        layout!(fmha_cache {
            struct_size,
            dtype,
            k,
            v,
            pages,
            page_size,
            block_table,
            stride_block_table,
            max_pages,
            kv_indptr,
            kv_indices,
            indices,
            cache_batch_idx,
            k_scale,
            v_scale,
            scale_per_page,
            k_vector,
            v_vector,
            reserved
        }),
        layout!(fmha_rotary { cos, sin, positions, stride_position, dim, dtype, interleaved }),
        layout!(fmha_kv_append_params {
            struct_size,
            dtype,
            batch,
            seqlen,
            total,
            nhead_q,
            nhead_k,
            hdim_q,
            hdim_v,
            q,
            q_out,
            k,
            v,
            cu_seqlens,
            seqused_k,
            slots,
            positions,
            slots_int64,
            positions_int64,
            rotary,
            cache,
            kernel,
            reserved,
            flags
        }),
        layout!(fmha_parts { data, stride_part, stride_batch, stride_seqlen, stride_head }),
        layout!(fmha_lse_parts { data, stride_part, stride_batch, stride_head }),
        layout!(fmha_merge_params {
            struct_size,
            dtype,
            o_dtype,
            lse_base,
            parts,
            batch,
            seqlen,
            nhead,
            hdim,
            o_parts,
            lse_parts,
            o,
            lse,
            accumulate,
            kernel,
            flags
        }),
        layout!(fmha_descale { data, stride_batch, stride_head, stride_block }),
        layout!(fmha_quantize_params {
            struct_size,
            dtype,
            out_dtype,
            scale_unit,
            batch,
            seqlen,
            nhead,
            hdim,
            heads_per_scale,
            block_tokens,
            x,
            out,
            descale,
            given,
            hadamard,
            workspace,
            workspace_bytes,
            kernel,
            reserved,
            flags
        }),
        layout!(fmha_kernel_info {
            struct_size,
            vgpr_count,
            sgpr_count,
            scratch_bytes,
            lds_bytes,
            block_size,
            tile_m,
            tile_n,
            grid,
            name,
            arch,
            sha256,
            candidate,
            candidate_count,
            pipeline,
            step_count,
            reserved,
            why
        }),
        layout!(fmha_extent { name, data, bytes, written, reserved }),
    ]
}

macro_rules! values {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name), i64::from($name))),*] };
}

fn constants() -> BTreeMap<&'static str, i64> {
    let list = values![
        FMHA_OK,
        FMHA_INVALID_ARGUMENT,
        FMHA_UNSUPPORTED,
        FMHA_HIP_ERROR,
        FMHA_INTERNAL,
        FMHA_ABI_MISMATCH,
        FMHA_FP16,
        FMHA_BF16,
        FMHA_FP32,
        FMHA_FP8_E4M3_FNUZ,
        FMHA_FP8_E4M3_FN,
        FMHA_MASK_NONE,
        FMHA_MASK_CAUSAL,
        FMHA_MASK_CAUSAL_TOP_LEFT,
        FMHA_MASK_WINDOW,
        FMHA_MASK_WINDOW_TOP_LEFT,
        FMHA_NO_MEMORY_CHECK,
        FMHA_LSE_NATURAL,
        FMHA_LSE_BASE2,
        FMHA_SCALE_TENSOR,
        FMHA_SCALE_HEAD,
        FMHA_SCALE_BLOCK,
        FMHA_HIP_NONE,
        FMHA_HIP_ENVIRONMENT,
        FMHA_HIP_MAPPED,
        FMHA_HIP_LOADER,
        FMHA_HIP_INSTALLED,
    ];
    list.into_iter().collect()
}

/// The header without its comments.
fn header() -> String {
    let text = fs::read_to_string(Path::new(INCLUDE).join("fmha_rocm.h")).expect("the installed header");
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").expect("the end of a comment").1;
    }
    code + rest
}

/// Names of a struct's fields, in the header's order.
fn fields_in(header: &str, name: &str) -> Vec<String> {
    let body = header.split_once(&format!("typedef struct {name} {{")).expect(name).1;
    let body = body.split_once(&format!("}} {name};")).expect(name).0;
    let declarations = body.split(';').map(str::trim).filter(|declaration| !declaration.is_empty());
    declarations
        .map(|declaration| {
            let name =
                declaration.split('[').next().unwrap().rsplit(|c: char| c.is_whitespace() || c == '*').next();
            name.unwrap().to_owned()
        })
        .collect()
}

/// A folder that ends with its scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let folder = env::temp_dir().join(format!("fmha-rocm-layout-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the output of a C program that is made of these statements.
fn in_c(statements: &str) -> String {
    let folder = Scratch::new();
    let (source, program) = (folder.0.join("layout.c"), folder.0.join("layout"));
    let code = format!(
        "#include <fmha_rocm.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         #define SIZE(s, f) sizeof(((s*)0)->f)\n\
         int main(void) {{\n{statements}return 0;\n}}\n"
    );
    fs::write(&source, code).unwrap();
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-Wall", "-Werror", "-I", INCLUDE]).arg(&source).arg("-o").arg(&program);
    assert!(command.status().expect("a C compiler: cc or $CC").success(), "{command:?}");
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}

#[test]
fn structs_are_those_of_c() {
    let (mut statements, mut expected) = (String::new(), String::new());
    for Layout { name, size, align, fields } in layouts() {
        writeln!(
            statements,
            "struct a_{name} {{ char c; {name} x; }};\n\
             printf(\"{name} %zu %zu\\n\", sizeof({name}), offsetof(struct a_{name}, x));"
        )
        .unwrap();
        writeln!(expected, "{name} {size} {align}").unwrap();
        for (field, offset, size) in fields {
            writeln!(
                statements,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof({name}, {field}), SIZE({name}, {field}));"
            )
            .unwrap();
            writeln!(expected, "{name}.{field} {offset} {size}").unwrap();
        }
    }
    assert_eq!(in_c(&statements), expected);
}

#[test]
fn no_struct_or_field_is_missing() {
    let (header, layouts) = (header(), layouts());
    assert_eq!(header.matches("typedef struct ").count(), layouts.len());
    for layout in layouts {
        let names: Vec<_> = layout.fields.iter().map(|(field, _, _)| field.to_string()).collect();
        assert_eq!(names, fields_in(&header, layout.name), "{}", layout.name);
    }
}

#[test]
fn constants_are_those_of_c() {
    let header = header();
    let named: BTreeMap<_, _> = header
        .lines()
        .filter_map(|line| line.split(',').next()?.trim().split_once(" = "))
        .filter(|(name, _)| name.starts_with("FMHA_"))
        .map(|(name, value)| (name, value.trim().parse::<i64>().unwrap()))
        .collect();
    assert_eq!(constants(), named);
}

macro_rules! functions {
    ($($name:ident),*) => { [$((stringify!($name), $name as *const ())),*] };
}

#[test]
fn functions_are_those_of_the_header() {
    // That they are in the library the linker has seen; here, that there are no others.
    let here = functions![
        fmha_version,
        fmha_build_info,
        fmha_last_error,
        fmha_set_hip_runtime,
        fmha_hip_runtime_path,
        fmha_hip_runtime_search,
        fmha_fwd_supported,
        fmha_fwd_kernel,
        fmha_fwd_workspace_bytes,
        fmha_fwd_extents,
        fmha_fwd_prepare,
        fmha_prepare,
        fmha_fwd,
        fmha_bwd_supported,
        fmha_bwd_kernel,
        fmha_bwd_workspace_bytes,
        fmha_bwd_extents,
        fmha_bwd_prepare,
        fmha_bwd,
        fmha_decode_supported,
        fmha_decode_kernel,
        fmha_decode_workspace_bytes,
        fmha_decode_extents,
        fmha_decode_prepare,
        fmha_decode,
        fmha_kv_append_supported,
        fmha_kv_append_kernel,
        fmha_kv_append_extents,
        fmha_kv_append_prepare,
        fmha_kv_append,
        fmha_merge_supported,
        fmha_merge_kernel,
        fmha_merge_extents,
        fmha_merge_prepare,
        fmha_merge,
        fmha_quantize_supported,
        fmha_quantize_kernel,
        fmha_quantize_workspace_bytes,
        fmha_quantize_extents,
        fmha_quantize_prepare,
        fmha_quantize
    ];
    let header = header();
    let declared: Vec<_> = header
        .split(';')
        .filter(|declaration| declaration.ends_with(')'))
        .map(|declaration| declaration.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap())
        .collect();
    assert_eq!(here.map(|(name, _)| name).to_vec(), declared);
    assert!(here.iter().all(|(_, address)| !address.is_null()));
}

#[test]
fn defaults_are_zeros_with_the_size() {
    let params = fmha_fwd_params::default();
    assert_eq!(params.struct_size as usize, mem::size_of::<fmha_fwd_params>());
    assert!(params.q.data.is_null() && params.mask == FMHA_MASK_NONE && params.v_descale == 0.0);
}
