// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/lds.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "check/config.h"
#include "code/launch.h"

namespace fmha::emu {
namespace {

__m128i load4(const uint32_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void store4(uint32_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
bool all(__m128i mask) { return _mm_movemask_epi8(mask) == 0xffff; }
// Stamps are below 2^31, so that signed comparisons serve.
__m128i below(__m128i stamps, uint32_t limit) { return _mm_cmplt_epi32(stamps, _mm_set1_epi32(limit)); }
// All ones if the stamp is of another wave.
__m128i other_wave(__m128i stamps, __m128i mine) {
  const __m128i same = _mm_cmpeq_epi32(
      _mm_and_si128(_mm_xor_si128(stamps, mine), _mm_set1_epi32(LdsShadow::kWaveMask)), _mm_setzero_si128());
  return _mm_andnot_si128(same, _mm_set1_epi32(-1));
}
__m128i select(__m128i mask, __m128i yes, __m128i no) {
  return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}

uint32_t word_of(const Workgroup& group, uint32_t word) {
  uint32_t value = 0;
  std::memcpy(&value, group.lds + word * 4, std::min(4u, group.lds_bytes - word * 4));
  return value;
}
// The bits of the bytes that have a bit in `bytes`.
uint32_t bits_of(uint8_t bytes) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= bytes >> i & 1 ? 0xffu << 8 * i : 0;
  return bits;
}

}  // namespace

void LdsShadow::reset(uint32_t bytes, uint32_t checks, std::vector<QueueProgress*> waves) {
  checks_ = checks;
  words_ = (bytes + 3) / 4;
  const size_t n = words_ + 4;
  written_.assign(n, kUnwritten);
  read_.assign(n, 0);
  read_other_.assign(n, 0);
  if (operations_.empty()) operations_.resize(kOperations);
  waves_ = std::move(waves);
  suspects_.clear();
  next_ = 1;
  settled_writes_ = settled_reads_ = kFirstStamp;
}

uint32_t LdsShadow::stamp(uint32_t wave, uint32_t inst, Queue queue, uint32_t sequence, bool atomic) {
  if (next_ >= kUnwritten >> kWaveBits) {  // numbers are used up: what is past counts as published
    std::fill(read_.begin(), read_.end(), 0);
    std::fill(read_other_.begin(), read_other_.end(), 0);
    for (uint32_t& s : written_) s = s >= kMixed ? s : 0;
    for (Bytes& b : bytes_) {
      for (Record& r : b.byte) r = {r.written == kUnwritten ? kUnwritten : 0, 0, 0};
    }
    next_ = 1;
    settled_writes_ = settled_reads_ = kFirstStamp;
  }
  const uint32_t s = next_ << kWaveBits | wave;
  operations_[next_++ % kOperations] = {s, inst, sequence, queue, atomic};
  return s;
}

void LdsShadow::settle(uint32_t oldest_open) {
  settled_reads_ = next_ << kWaveBits;
  settled_writes_ = oldest_open ? oldest_open & ~kWaveMask : settled_reads_;
}

const LdsShadow::Operation* LdsShadow::find(uint32_t stamp) const {
  const Operation& o = operations_[(stamp >> kWaveBits) % kOperations];
  return o.stamp == stamp && stamp ? &o : nullptr;
}

LdsShadow::Order LdsShadow::after_write(uint32_t earlier, const Operation& now) const {
  if (earlier < settled_writes_ || earlier == now.stamp) return Order::kFine;
  const Operation* o = find(earlier);
  return o ? order(*o, now, waves_[wave_of(earlier)]->published) : Order::kFine;
}

LdsShadow::Order LdsShadow::after_read(uint32_t earlier, const Operation& now) const {
  if (earlier < settled_reads_ || earlier == now.stamp) return Order::kFine;
  const Operation* o = find(earlier);
  return o ? order(*o, now, waves_[wave_of(earlier)]->arrived) : Order::kFine;
}

// May `now` follow an earlier operation, of which at least one writes?
LdsShadow::Order LdsShadow::order(const Operation& earlier, const Operation& now,
                                  const uint32_t* published) const {
  if (earlier.atomic && now.atomic) return Order::kFine;
  const auto queue = static_cast<size_t>(earlier.queue);
  if (wave_of(earlier.stamp) != wave_of(now.stamp))
    return earlier.sequence < published[queue] ? Order::kFine : Order::kRace;
  const bool in_order = earlier.queue == now.queue && earlier.queue != Queue::kFlat;
  const bool done = earlier.sequence < waves_[wave_of(now.stamp)]->done[queue];
  return in_order || done ? Order::kFine : Order::kNotDrained;
}

bool LdsShadow::report(Wave& w, const Inst& inst, Order order, uint32_t earlier, bool earlier_wrote,
                       bool writes, uint32_t word, int lane) {
  const bool race = order != Order::kNotDrained, equal = order == Order::kEqualRace;
  if (!(checks_ & (equal ? kCheckLdsRaceEqual : race ? kCheckLdsRace : kCheckWaits))) return true;
  const Operation& o = *find(earlier);
  const Inst& other = text_of(*w.group->launch).insts[o.inst];
  w.fault(inst, hipErrorLaunchFailure,
          "%s: lane %d %s LDS bytes 0x%x to 0x%x, which wave %u %s at pc 0x%llx `%s`, with no %s between",
          equal  ? "LDS race of equal values"
          : race ? "LDS race"
                 : "missing wait",
          lane, writes ? "writes" : "reads", word * 4, word * 4 + 3, wave_of(earlier),
          earlier_wrote ? "writes" : "reads", static_cast<unsigned long long>(other.pc),
          disassemble(other, w.group->launch->code->arch()).c_str(),
          !race                       ? "s_waitcnt that covers it"
          : !earlier_wrote            ? "s_barrier"
          : o.queue == Queue::kVector ? "s_waitcnt vmcnt and s_barrier"
                                      : "s_waitcnt lgkmcnt and s_barrier");
  return false;
}

bool LdsShadow::read(Wave& w, const Inst& inst, const Operation& now, Record* r, uint32_t word, int lane) {
  if (r->written == kUnwritten) {
    if (checks_ & kCheckLdsUnwritten) {
      w.fault(inst, hipErrorLaunchFailure, "lane %d reads LDS bytes 0x%x to 0x%x, of which nobody wrote all",
              lane, word * 4, word * 4 + 3);
      return false;
    }
  } else if (const Order o = after_write(r->written, now); o != Order::kFine) {
    if (!report(w, inst, o, r->written, true, false, word, lane)) return false;
  }
  if (wave_of(r->read) != wave_of(now.stamp)) r->read_other = r->read;
  r->read = now.stamp;
  return true;
}

bool LdsShadow::write(Wave& w, const Inst& inst, const Operation& now, Record* r, uint32_t word,
                      uint8_t bytes, int lane) {
  if (r->written != kUnwritten) {
    const Order o = after_write(r->written, now);
    if (o == Order::kRace && !now.atomic && !find(r->written)->atomic)
      suspects_.push_back({word, r->written, lane, bytes, word_of(*w.group, word)});
    else if (o != Order::kFine && !report(w, inst, o, r->written, true, true, word, lane))
      return false;
  }
  const auto follows = [&](uint32_t reader) {
    const Order o = after_read(reader, now);
    return o == Order::kFine || report(w, inst, o, reader, false, true, word, lane);
  };
  if (!follows(r->read) || !follows(r->read_other)) return false;
  r->written = now.stamp;
  return true;
}

// A write that differs says more than one that does not.
void LdsShadow::judge(Wave& w, const Inst& inst) {
  for (const Order order : {Order::kRace, Order::kEqualRace}) {
    for (const Suspect& s : suspects_) {
      const bool equal = !((word_of(*w.group, s.word) ^ s.before) & bits_of(s.bytes));
      if (equal != (order == Order::kEqualRace)) continue;
      if (!report(w, inst, order, s.earlier, true, true, s.word, s.lane)) return suspects_.clear();
    }
  }
  suspects_.clear();
}

bool LdsShadow::is_mixed(uint32_t word, uint8_t bytes) {
  if (written_[word] == kMixed) return true;
  if (bytes == 15) return false;
  if (bytes_.size() < written_.size()) bytes_.resize(written_.size());
  for (Record& r : bytes_[word].byte) r = {written_[word], read_[word], read_other_[word]};
  written_[word] = kMixed;
  return true;
}

// Once nothing of the bytes is open any more, one record serves for all of them.
void LdsShadow::unmix_if_settled(uint32_t word) {
  uint32_t last = 0;
  for (const Record& r : bytes_[word].byte) {
    if (r.written >= settled_writes_ || std::max(r.read, r.read_other) >= settled_reads_) return;
    last = std::max(last, r.written);
  }
  written_[word] = last;
  read_[word] = read_other_[word] = 0;
}

bool LdsShadow::read_word(Wave& w, const Inst& inst, const Operation& now, uint32_t word, uint8_t bytes,
                          int lane) {
  if (written_[word] == kMixed && bytes == 15) unmix_if_settled(word);
  if (!is_mixed(word, bytes)) {
    Record r{written_[word], read_[word], read_other_[word]};
    if (!read(w, inst, now, &r, word, lane)) return false;
    read_[word] = r.read;
    read_other_[word] = r.read_other;
    return true;
  }
  for (int i = 0; i < 4; ++i) {
    if (bytes >> i & 1 && !read(w, inst, now, &bytes_[word].byte[i], word, lane)) return false;
  }
  return true;
}

bool LdsShadow::write_word(Wave& w, const Inst& inst, const Operation& now, uint32_t word, uint8_t bytes,
                           int lane) {
  if (!is_mixed(word, bytes)) {
    Record r{written_[word], read_[word], read_other_[word]};
    if (!write(w, inst, now, &r, word, bytes, lane)) return false;
    written_[word] = r.written;
    return true;
  }
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<uint8_t>(bytes & 1u << i);
    if (byte && !write(w, inst, now, &bytes_[word].byte[i], word, byte, lane)) return false;
  }
  if (bytes == 15) {  // what was open before this write, the write itself stands for now
    written_[word] = now.stamp;
    read_[word] = read_other_[word] = 0;
  }
  return true;
}

bool LdsShadow::access(Wave& w, const Inst& inst, LdsAccess::Kind kind, uint32_t stamp, uint32_t address,
                       uint32_t bytes, int lane) {
  const Operation now = operations_[(stamp >> kWaveBits) % kOperations];
  for (uint32_t at = address; at < address + bytes;) {
    const uint32_t first = at & 3, n = std::min(4 - first, address + bytes - at);
    const auto mask = static_cast<uint8_t>(((1u << n) - 1) << first);
    const bool reads = kind == LdsAccess::kRead || kind == LdsAccess::kAtomic;
    if (reads && !read_word(w, inst, now, at / 4, mask, lane)) return false;
    if (kind != LdsAccess::kRead && !write_word(w, inst, now, at / 4, mask, lane)) return false;
    at += n;
  }
  return true;
}

bool LdsShadow::read16(uint32_t stamp, uint32_t address) {
  const uint32_t word = address / 4;
  if (!all(below(load4(&written_[word]), settled_writes_))) return false;
  const __m128i mine = _mm_set1_epi32(stamp), last = load4(&read_[word]);
  store4(&read_other_[word], select(other_wave(last, mine), last, load4(&read_other_[word])));
  store4(&read_[word], mine);
  return true;
}

bool LdsShadow::write16(uint32_t stamp, uint32_t address) {
  const uint32_t word = address / 4;
  const __m128i reads = _mm_and_si128(below(load4(&read_[word]), settled_reads_),
                                      below(load4(&read_other_[word]), settled_reads_));
  if (!all(_mm_and_si128(reads, below(load4(&written_[word]), settled_writes_)))) return false;
  store4(&written_[word], _mm_set1_epi32(stamp));
  return true;
}

}  // namespace fmha::emu
