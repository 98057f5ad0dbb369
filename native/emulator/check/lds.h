// SPDX-License-Identifier: MIT OR Apache-2.0
// The shadow of a workgroup's LDS: who wrote and who read each word last, and whether a barrier makes that
// known to the other waves.
//
// Every instruction that touches LDS gets a stamp, ever larger, which names its wave and leads to its record.
// A write is *published* when it had completed, by its wave's own s_waitcnt, at a barrier that released; a
// read when it had been issued: LDS takes requests in the order in which they are issued, so that a read
// issued before the barrier sees nothing written behind it (CK's pipelines with loads to LDS count on that).
// Other waves may then rely on it; without, an access by two waves of which one writes is a race. Stamps
// below settled_writes_ and settled_reads_ are all published: one comparison a word is all that most accesses
// cost.
//
// Two waves that write the same value are a finding of its own kind. The kind shows when the second has
// written: until then the race is a suspect, with the bytes' earlier values.
//
// Precision: bytes. A record is kept by word; a word of which an instruction touches only some bytes gets one
// by byte, until all that is known of its bytes is published again, or a wave writes all of it. Records are
// kept of the last 65536 operations; older ones count as published.
#pragma once

#include <cstdint>
#include <vector>

#include "code/facts.h"
#include "code/queue.h"
#include "core/wave.h"

namespace fmha::emu {

class LdsShadow {
 public:
  // The low bits of a stamp: the wave, of the 32 that 1024 lanes come to at 32 a wave.
  static constexpr uint32_t kWaveBits = 5, kWaveMask = (1u << kWaveBits) - 1;

  // Begins a new workgroup of `waves`, whose progress the caller keeps up to date.
  void reset(uint32_t bytes, uint32_t checks, std::vector<QueueProgress*> waves);
  // A stamp for an operation of `wave` that is number `sequence` of `queue`.
  uint32_t stamp(uint32_t wave, uint32_t inst, Queue queue, uint32_t sequence, bool atomic);
  // Does a barrier: writes with stamps below `oldest_open`, and all if it is 0, are published; and all reads.
  void settle(uint32_t oldest_open);

  // An access of `bytes` at `address`, inside LDS; false after a finding. `stamp` is of its instruction.
  bool access(Wave& w, const Inst& inst, LdsAccess::Kind kind, uint32_t stamp, uint32_t address,
              uint32_t bytes, int lane);
  // Judges the suspects that access() has noted, once the instruction has run.
  void settle_suspects(Wave& w, const Inst& inst) {
    if (!suspects_.empty()) [[unlikely]]
      judge(w, inst);
  }
  // 16 bytes at an address divisible by 4: true if nothing is wrong, and done; else nothing has been changed.
  bool read16(uint32_t stamp, uint32_t address);
  bool write16(uint32_t stamp, uint32_t address);
  // The same of 4 bytes.
  bool write4(uint32_t stamp, uint32_t address) {
    const uint32_t word = address / 4;
    if (read_[word] >= settled_reads_ || read_other_[word] >= settled_reads_) return false;
    if (written_[word] >= settled_writes_) return false;
    written_[word] = stamp;
    return true;
  }

 private:
  struct Operation {
    uint32_t stamp = 0, inst = 0, sequence = 0;
    Queue queue = Queue::kLds;
    bool atomic = false;
  };
  static constexpr uint32_t kOperations = 1u << 16;
  // Stands for a stamp, above all of them: nobody wrote any byte; the bytes have records of their own.
  static constexpr uint32_t kUnwritten = 0x7fffffff, kMixed = 0x7ffffffe;
  static constexpr uint32_t kFirstStamp = 1u << kWaveBits;
  static uint32_t wave_of(uint32_t stamp) { return stamp & kWaveMask; }

  enum class Order { kFine, kRace, kEqualRace, kNotDrained };
  const Operation* find(uint32_t stamp) const;
  Order after_write(uint32_t earlier, const Operation& now) const;
  Order after_read(uint32_t earlier, const Operation& now) const;
  Order order(const Operation& earlier, const Operation& now, const uint32_t* published) const;
  // The stamp of the last write; of the last read, and of the last one by another wave than that.
  struct Record {
    uint32_t written = 0, read = 0, read_other = 0;
  };
  struct Bytes {
    Record byte[4];
  };
  // A wave is about to write over bytes of a word that another wave has written, unordered.
  struct Suspect {
    uint32_t word, earlier;  // the stamp of the write before
    int lane;
    uint8_t bytes;    // a bit each
    uint32_t before;  // what the word held
  };
  bool read_word(Wave& w, const Inst& inst, const Operation& now, uint32_t word, uint8_t bytes, int lane);
  bool write_word(Wave& w, const Inst& inst, const Operation& now, uint32_t word, uint8_t bytes, int lane);
  bool read(Wave& w, const Inst& inst, const Operation& now, Record* r, uint32_t word, int lane);
  bool write(Wave& w, const Inst& inst, const Operation& now, Record* r, uint32_t word, uint8_t bytes,
             int lane);
  void judge(Wave& w, const Inst& inst);
  bool is_mixed(uint32_t word, uint8_t bytes);  // and makes it so if it is about to be
  void unmix_if_settled(uint32_t word);
  bool report(Wave& w, const Inst& inst, Order order, uint32_t earlier, bool earlier_wrote, bool writes,
              uint32_t word, int lane);

  uint32_t words_ = 0, next_ = 1;
  uint32_t checks_ = 0;  // bits of enum Check
  uint32_t settled_writes_ = kFirstStamp, settled_reads_ = kFirstStamp;
  std::vector<uint32_t> written_, read_, read_other_;  // as in a Record, by word
  std::vector<Bytes> bytes_;                           // by word, if written_ says kMixed
  std::vector<Operation> operations_;
  std::vector<Suspect> suspects_;  // of the instruction that runs
  std::vector<QueueProgress*> waves_;
};

}  // namespace fmha::emu
