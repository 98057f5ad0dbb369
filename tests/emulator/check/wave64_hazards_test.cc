// SPDX-License-Identifier: MIT OR Apache-2.0
// gfx11's hazards of waves of 64, without a wave: which sequences are found. LLVM 19's llc, with
// -mattr=+wavefrontsize64 -run-pass=post-RA-hazard-rec, mends those and no other. Behind a slash are those of
// which only LLVM 22 knows: the vector unit's writes.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check/partial_forwarding.h"
#include "check/scalar_hazards.h"
#include "code/code_object.h"

using namespace fmha::emu;

namespace {

// Instructions by letter, as LLVM assembles them for gfx1100.
struct Letter {
  char letter;
  std::vector<uint32_t> words;
};
const Letter kLetters[] = {
    {'k', {0xd5010003, 0x00520501}},  // v_cndmask_b32 v3, v1, v2, s[20:21]
    {'c', {0x02060501}},              // v_cndmask_b32 v3, v1, v2, vcc
    {'f', {0xd6370003, 0x04120501}},  // v_div_fmas_f32 v3, v1, v2, v4
    {'S', {0xbe940180}},              // s_mov_b64 s[20:21], 0
    {'s', {0xbe940080}},              // s_mov_b32 s20, 0
    {'m', {0xbeea0180}},              // s_mov_b64 vcc, 0
    {'r', {0xbe9e0114}},              // s_mov_b64 s[30:31], s[20:21]
    {'q', {0xbe9e016a}},              // s_mov_b64 s[30:31], vcc
    {'R', {0x7e0c0214}},              // v_mov_b32 v6, s20
    {'o', {0x7e0c0228}},              // v_mov_b32 v6, s40
    {'l', {0x7e0c02ff, 0x0001e240}},  // v_mov_b32 v6, 123456
    {'1', {0x7e0c0281}},              // v_mov_b32 v6, 1
    {'v', {0x7e0c0307}},              // v_mov_b32 v6, v7
    {'C', {0xd44a0014, 0x00020501}},  // v_cmp_eq_u32 s[20:21], v1, v2
    {'K', {0x7c940501}},              // v_cmp_eq_u32 vcc, v1, v2
    {'A', {0xbf88fffe}},              // s_waitcnt_depctr depctr_sa_sdst(0)
    {'V', {0xbf88fffd}},              // s_waitcnt_depctr depctr_va_vcc(0)
    {'D', {0xbf88f1ff}},              // s_waitcnt_depctr depctr_va_sdst(0)
    {'W', {0xbf880fff}},              // s_waitcnt_depctr depctr_va_vdst(0)
    {'x', {0xbea00080}},              // s_mov_b32 s32, 0
    {'g', {0xdc520000, 0x08080001}},  // global_load_b32 v8, v1, s[8:9]
    {'a', {0x7e140307}},              // v_mov_b32 v10, v7
    {'b', {0x7e160307}},              // v_mov_b32 v11, v7
    {'e', {0xbefe01c1}},              // s_mov_b64 exec, -1
    {'h', {0xbefe00c1}},              // s_mov_b32 exec_lo, -1
    {'H', {0xbeff00c1}},              // s_mov_b32 exec_hi, -1
    {'X', {0x7d940301}},              // v_cmpx_eq_u32 v1, v1
    {'U', {0x0606170a}},              // v_add_f32 v3, v10, v11
    {'T', {0x0606150a}},              // v_add_f32 v3, v10, v10
    {'n', {0xbf800000}},              // s_nop 0
};

DecodedText decoded(const std::string& sequence) {
  std::vector<uint32_t> text;
  for (const char c : sequence) {
    for (const Letter& l : kLetters) {
      if (l.letter == c) text.insert(text.end(), l.words.begin(), l.words.end());
    }
  }
  std::vector<uint8_t> bytes(text.size() * 4);
  std::memcpy(bytes.data(), text.data(), bytes.size());
  return decode(Arch::kGfx1100, 64, bytes.data(), bytes.size(), 0);
}

// Does `checks` find something at the last instruction, and only there?
template <class Checks, class Step>
void expect(const std::string& sequence, bool want, Checks checks, Step step) {
  const DecodedText text = decoded(sequence);
  const TextFacts facts(text, Arch::kGfx1100, 64);
  CAPTURE(sequence);
  REQUIRE(text.insts.size() >= sequence.size());  // a guard may lie behind them
  for (size_t i = 0; i < sequence.size(); ++i) {
    const bool last = i + 1 == sequence.size();
    CHECK_MESSAGE(step(checks, text.insts[i], facts.hot(i), facts.detail(i)) == (last && want),
                  "instruction ", i);
  }
}

void forwarding(const std::string& sequence, bool want) {
  expect(sequence, want, PartialForwarding(),
         [](auto& checks, const auto&... args) { return checks.step(args...) != nullptr; });
}

void masks(const std::string& sequence, bool want, bool by_vector = false) {
  expect(sequence, want, ScalarHazards(ScalarHazards::Of::kMasks, by_vector),
         [](auto& checks, const auto&... args) { return checks.step(args...).writer != nullptr; });
}

TEST_CASE("forwarding of half a result") {
  for (const char* s : {"aebU", "aebvU", "aevbU", "avebU", "aevvbU", "avvebU", "aebvvvvU", "aevvbvvvvU",
                        "ahbU", "aHbU", "beaU", "aenbU", "abebU", "aeebU", "avevbU", "aebeU", "aebevvU"})
    forwarding(s, true);
  for (const char* s : {"eabU", "aevvvbU", "aebvvvvvU", "aebT", "aXbU", "abeU", "aebgU", "aebaU", "aebWU",
                        "aegbU", "avvevbU", "ebU", "U", "avvvebU"})
    forwarding(s, false);
}

TEST_CASE("masks of lanes") {
  for (const char* s : {"kSr", "kSR", "ksR", "kSSr", "kvSr", "k1Sr", "kSxr", "kgSr", "kSk", "kSgr", "cmq",
                        "cmc", "fmq", "kSxxxxxxxxxxxxr", "kSVDr", "kSvR"})
    masks(s, true);
  for (const char* s :
       {"koSr", "klSr", "kSo", "oSr", "rSR", "CSr", "kSAr", "kSAR", "kRSr", "kcSr", "SR", "cmAc", "kASr"})
    masks(s, false);
  for (const char* s : {"kCR", "kCr", "kCk", "cKc", "cKq", "kCAVr"}) {
    masks(s, true, true);
    masks(s, false);
  }
  for (const char* s : {"cCr", "kCDr", "cKVc", "koCr"}) masks(s, false, true);
}

}  // namespace
