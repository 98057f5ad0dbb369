// SPDX-License-Identifier: MIT OR Apache-2.0
// How LLVM writes registers, constants and the fields that have names.
#pragma once

#include <cstdint>
#include <string>

#include "core/dialect.h"
#include "core/inst.h"

namespace fmha::emu {

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

std::string operand_text(const Operand& o, Type type, const Dialect& dialect);  // without modifiers
std::string hwreg_text(uint32_t imm, const Dialect& dialect);                   // "hwreg(HW_REG_MODE, 4, 2)"
std::string waitcnt_text(uint32_t imm, const Dialect& dialect);                 // "vmcnt(0) lgkmcnt(0)"
std::string buffer_format_text(uint32_t data, uint32_t number);
std::string unified_format_text(const Inst& inst);           // RDNA's
std::string dpp_text(const Dpp& d, const Dialect& dialect);  // " row_shl:1 row_mask:0xf bank_mask:0xf"
std::string swizzle_text(uint32_t offset);                   // of ds_swizzle_b32: " offset:swizzle(...)"
std::string gpr_idx_text(uint32_t mode);                     // "gpr_idx(SRC0,DST)"
std::string sendmsg_text(uint32_t imm, const Dialect& dialect);
const char* rdna_hwreg_name(uint32_t id, const Dialect& dialect);  // null: it has none
std::string rdna_sendmsg_text(uint32_t imm, const Dialect& dialect);
std::string version_text(uint32_t imm);     // of s_version: "UC_VERSION_GFX12|UC_VERSION_W32_BIT"
std::string delay_text(uint32_t imm);       // of s_delay_alu: "instid0(VALU_DEP_1)"
std::string dependency_text(uint32_t imm);  // of s_waitcnt_depctr: "depctr_va_vdst(0)"
const char* sdwa_sel_text(uint8_t sel);
const char* sdwa_unused_text(uint8_t unused);

}  // namespace fmha::emu
