// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward attention for Radeon, by WMMA or what stands in for it on gfx10.3 (hip/common/wmma.h). A workgroup
// does 128 rows of a query head, a wave 16 of them, all keys in blocks of 64 (head dim 128) or 128 (64). At
// head dim 256 (512) two (four) waves share 16 rows, and blocks have 32 keys: a wave has 128 of the head dim,
// of Q, S's sum and O.
//
//   phase     a wave                                          LDS
//   barrier                                                   K[n] is there; V[n-1] has been read
//   stores    V[n], turned; asks for K[n+1]
//   scores    S = Q K[n]; softmax
//   barrier                                                   V[n] is there; K[n] has been read
//   shared    S of the waves that share rows, added up;       from head dim 256 on; of 512, whose K and V
//             softmax                                         fill LDS, between two more barriers, in K's
//   stores    K[n+1]; asks for V[n+1]
//   products  O += P V[n]
//
// A tile has half a round to arrive, in registers; LDS holds one of K and one of V, 32 KB, which leaves the
// registers to decide how many waves a SIMD has: four, and of head dim 64 on gfx12 eight.
//
// S^T = K Q^T and O^T = V^T P^T: what a lane has of S^T, eight keys of one row, is what the next product
// takes of P^T (gfx12), or half of it, the other half being that of the lane 16 apart (gfx11 and
// gfx10.3, three instructions for two pairs of keys). A row's maximum and sum take one exchange of lanes. V
// is turned on its way to LDS, by v_perm_b32 in registers; no store is shorter than eight bytes, and no
// access has a bank conflict (hip/common/wmma_tiles.h).
//
// The exponentials' reference, and how P is rounded, are those of hip/fwd/fwd_pingpong.h. Only blocks that
// hide a key from some row of the wave are masked; those that hide all of them are skipped.
//
//   budget, head dim 128   registers, gfx11 (gfx12)    a SIMD, 64 keys of 16 rows
//   O                      64                          matrix 64 WMMA, 2048 (1024) cycles
//   Q                      64 (32)                     LDS reads 64 KB (32 KB): 512 (256) cycles of the unit
//   S                      32                          stores 4 KB: 32 cycles
//   P                      16
//   K or V on its way      16
#pragma once

#include "args/fwd_wmma.h"
#include "common/device.h"
#include "hip/common/wmma_dropout.h"
#include "hip/common/wmma_features.h"
#include "hip/common/wmma_tiles.h"
#include "hip/fwd/fwd_work.h"

namespace fmha {

inline constexpr int kWmmaWaves = 8;
inline constexpr int kWmmaBlock = 32 * kWmmaWaves;
inline constexpr int kWmmaRows = 16;  // of a wave

template <typename T, int kHdim, WmmaFeatures kFeatures>
class FwdWmma {
  static constexpr int kParts = kHdim > 128 ? kHdim / 128 : 1;   // waves that share rows
  static constexpr int kDims = kHdim / kParts;                   // of a wave
  static constexpr int kKeys = kHdim > 256 ? 32 : 8192 / kHdim;  // a tile of 16 KB, or of 32
  using KeyTile = WmmaTile<kKeys, kHdim>;
  using ValueTile = WmmaTile<kHdim, kKeys>;
  static constexpr int kSteps = kDims / 16;   // of S
  static constexpr int kTilesS = kKeys / 16;  // of S^T, and steps of O
  static constexpr int kTilesO = kDims / 16;
  static constexpr int kGroup = kWholeA ? 2 : 4;  // operands that are read at a time
  // What waves of the same rows tell each other: S of their head dims. It has LDS of its own, or K's.
  static constexpr int kTileBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kSharedBytes = kParts > 1 ? kWmmaWaves* kTilesS * 1024 : 0;
  static constexpr bool kSharesApart = kTileBytes + kSharedBytes <= 65536;
  static constexpr int kLdsBytes = kTileBytes + (kSharesApart ? kSharedBytes : 0);
  static_assert(kSharesApart || kSharedBytes <= KeyTile::kBytes);
  static constexpr int kValueDims = 8192 / kKeys;  // that a mover moves
  static constexpr int kValueMovers = kHdim / kValueDims;
  static constexpr float kLowest = -3.40282346638528859811704183484516925440e+38F;
  static constexpr float kSlack = 8;  // the reference's, a power of two

 public:
  static constexpr int kTileN = kKeys;
  static constexpr int kTileM = kWmmaWaves / kParts * kWmmaRows;

  __device__ static void run() {
    __shared__ __attribute__((aligned(128))) uint8_t lds[kLdsBytes];
    FwdWmma d(*reinterpret_cast<const FwdWmmaParams*>(__builtin_amdgcn_kernarg_segment_ptr()),
              (LdsByte*)(lds));  // NOLINT: the only cast that changes address spaces
    if (!d.work.find(d.p, kTileN, kFeatures.mask)) return;
    d.begin();
    if (d.work.blocks > 0) d.walk();
    d.end();
  }

 private:
  __device__ FwdWmma(const FwdWmmaParams& params, LdsByte* lds)
      : p(params.plain),
        more(params),
        keys(lds),
        values(lds + KeyTile::kBytes),
        shared(lds + (kSharesApart ? kTileBytes : 0)) {}

  // ---- The beginning.

  __device__ void begin() {
    wave = __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / 32);
    lane = static_cast<int>(threadIdx.x) % 32;
    half = lane / 16;
    part = wave % kParts;
    first_row = work.tile * kTileM + wave / kParts * kWmmaRows;
    row = first_row + lane % 16;
    const int kv_head = work.head / p.nhead_ratio;
    k = static_cast<const uint8_t*>(p.k) + work.batch * p.k_strides.batch + kv_head * p.k_strides.nhead +
        work.first_k * p.k_strides.row;
    v = static_cast<const uint8_t*>(p.v) + work.batch * p.v_strides.batch + kv_head * p.v_strides.nhead +
        work.first_k * p.v_strides.row;
    key_mover.begin(p.k_strides.row, p.hdim_q);
    for (int i = 0; i < kValueMovers; ++i) {
      value_movers[i].begin(p.v_strides.row, p.hdim_v - i * kValueDims);
    }
    k_read = KeyTile::begin_a(lane);
    v_read = ValueTile::begin_a(lane);
    one = unknown_one();
    find_edges();
    begin_features();
    row_max = kLowest;
    row_sum = 0;
    _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) o[t] = Float8{};
  }

  // Blocks in front of `whole_first` and from `whole_end` on hide some key from some row of the wave, those
  // in front of `seen_first` and from `seen_end` on all of them.
  __device__ void find_edges() {
    whole_end = work.seqlen_k / kTileN;
    whole_first = seen_first = 0;
    seen_end = work.first_block + work.blocks;
    if (first_row >= work.seqlen_q) seen_end = 0;
    if constexpr (kFeatures.mask) {
      const int left = work.window(p).first(first_row);
      const int right = work.window(p).last(first_row) + 1;  // behind the first row's last key
      whole_end = min(whole_end, block_in_front(right));
      whole_first = block_in_front(left + kWmmaRows - 1 + kTileN - 1);
      seen_end = min(seen_end, block_in_front(right + kWmmaRows - 1 + kTileN - 1));
      seen_first = block_in_front(left);
    }
  }
  __device__ static int block_in_front(int key) { return key > 0 ? key / kTileN : 0; }

  __device__ void begin_features() {
    if constexpr (kFeatures.softcap) softcap.begin(more.softmax_scale, more.softcap);
    if constexpr (kFeatures.dropout) {
      const uint64_t seed = more.philox ? more.philox[0] : more.philox_seed;
      const uint64_t offset = more.philox ? more.philox[1] : more.philox_offset;
      const uint64_t head = static_cast<uint64_t>(work.batch) * p.nhead_q + work.head;
      kept = {{seed, offset + head * kRandomLanes}, more.keep_at_most, lane};
    }
    if constexpr (kFeatures.bias == WmmaBias::kAlibi) {
      slope = more.alibi[work.batch * more.alibi_batch + work.head] * kLog2eOfScores;
    } else if constexpr (kFeatures.bias == WmmaBias::kElementwise) {
      const T* base = static_cast<const T*>(more.bias) + work.batch * more.bias_batch +
                      work.head * more.bias_nhead + (work.first_q + tile_row()) * more.bias_row;
      bias.set(base, more.bias_row, rows_left(), work.seqlen_k);
    }
  }

  __device__ int tile_row() const { return work.tile * kTileM; }
  __device__ int rows_left() const { return min(work.seqlen_q - tile_row(), kTileM); }

  // b: a column is a row of Q.
  __device__ void load_q() {
    const uint8_t* base = static_cast<const uint8_t*>(p.q) + work.batch * p.q_strides.batch +
                          work.head * p.q_strides.nhead + (work.first_q + tile_row()) * p.q_strides.row;
    const Resource from = resource(base, rows_left() * p.q_strides.row);
    const uint32_t begin = (row - tile_row()) * p.q_strides.row;
    const auto eight = [&](int dim_of_part) {
      const int dim = part * kDims + dim_of_part;
      return __builtin_amdgcn_raw_buffer_load_b128(from, dim < p.hdim_q ? begin + dim * 2 : kNowhere, 0, 0);
    };
    _Pragma("unroll") for (int s = 0; s < kSteps; ++s) {
      q[s] = operand_by<OperandB>([&](int i) { return eight(s * 16 + (kWholeB ? i : half) * 8); });
    }
  }

  // ---- The main loop.

  // The rows of block `i` of the workgroup's; past the last one there are no rows.
  __device__ Resource block_of(const uint8_t* base, uint32_t row_bytes, int i) const {
    const int first = (work.first_block + i) * kTileN;
    const int rows = min(work.seqlen_k - first, kTileN);
    return resource(base + static_cast<int64_t>(first) * row_bytes,
                    i < work.blocks && rows > 0 ? rows * row_bytes : 0);
  }
  __device__ void load_keys(int i) { key_mover.load(block_of(k, p.k_strides.row, i)); }
  __device__ void load_values(int i) {
    _Pragma("unroll") for (int j = 0; j < kValueMovers; ++j) {
      value_movers[j].load(block_of(v + 2 * j * kValueDims, p.v_strides.row, i));
    }
  }
  __device__ void store_values() const {
    _Pragma("unroll") for (int j = 0; j < kValueMovers; ++j) {
      value_movers[j].store_turned(values + ValueTile::line(j * kValueDims));
    }
  }

  __device__ void walk() {
    load_keys(0);
    load_q();
    key_mover.store(keys);
    load_values(0);
    for (int n = 0; n < work.blocks; ++n) {
      const int block = work.first_block + n;
      const bool seen = block >= seen_first && block < seen_end;
      lds_barrier();
      store_values();
      load_keys(n + 1);
      if (seen) scores();
      if constexpr (kParts == 1) {
        if (seen) softmax(block);
      }
      share(seen);
      key_mover.store(keys);
      load_values(n + 1);
      if (seen && kParts > 1) softmax(block);
      if (seen) products();
    }
  }

  // The barrier that K is read behind. Waves of the same rows add up what they have of S, all in the same
  // order.
  __device__ void share(bool seen) {
    if constexpr (kParts > 1) {
      if (!kSharesApart) lds_barrier();
      if (seen) tell();
      lds_barrier();
      if (seen) add_up();
      if (!kSharesApart) lds_barrier();
    } else {
      lds_barrier();
    }
  }

  // Half a tile of S of a wave: 16 bytes of each lane, one after another.
  __device__ LdsByte* told(int of_wave, int i) const {
    return shared + (of_wave * 2 * kTilesS + i) * 512 + remade(lane) * 16;
  }
  __device__ void tell() const {
    _Pragma("unroll") for (int i = 0; i < 2 * kTilesS; ++i) {
      const Float8& x = s[i / 2];
      lds_store(told(wave, i), i % 2 == 0 ? __builtin_shufflevector(x, x, 0, 1, 2, 3)
                                          : __builtin_shufflevector(x, x, 4, 5, 6, 7));
    }
  }
  __device__ void add_up() {
    _Pragma("unroll") for (int i = 0; i < 2 * kTilesS; ++i) {
      const int first = i % 2 * 4;
      const auto next = lds_load<Float4>(told(wave ^ 1, i));
      _Pragma("unroll") for (int j = 0; j < 4; ++j) s[i / 2][first + j] += next[j];
      if constexpr (kParts > 2) {
        const auto far = lds_load<Float4>(told(wave ^ 2, i)), last = lds_load<Float4>(told(wave ^ 3, i));
        _Pragma("unroll") for (int j = 0; j < 4; ++j) s[i / 2][first + j] += far[j] + last[j];
      }
    }
  }

  // Products of operands that are read from LDS in groups, each while the one before is multiplied: `read(i)`
  // and `use(i, operand)` of i from 0 to before `kCount`.
  template <int kCount, typename Read, typename Use>
  __device__ static void stream(Read read, Use use) {
    static_assert(kCount % kGroup == 0);
    OperandA ring[2][kGroup];
    const auto read_group = [&](int first) {
      _Pragma("unroll") for (int j = 0; j < kGroup; ++j) ring[first / kGroup % 2][j] = read(first + j);
    };
    read_group(0);
    _Pragma("unroll") for (int i = 0; i < kCount; i += kGroup) {
      if (i + kGroup < kCount) read_group(i + kGroup);
      __builtin_amdgcn_sched_barrier(0);
      _Pragma("unroll") for (int j = 0; j < kGroup; ++j) use(i + j, ring[i / kGroup % 2][j]);
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  __device__ void scores() {
    const LdsByte* const columns = keys + part * kDims * 2;
    const int begin = remade(k_read);
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) s[t] = Float8{};
    stream<kSteps * kTilesS>(
        [&](int i) { return KeyTile::read_a(columns, begin, i % kTilesS, i / kTilesS); },
        [&](int i, OperandA a) { s[i % kTilesS] = multiply16<T>(a, q[i / kTilesS], s[i % kTilesS]); });
  }

  __device__ void products() {
    const LdsByte* const rows = values + ValueTile::line(part * kDims);
    const int begin = remade(v_read);
    OperandB b;
    stream<kTilesS * kTilesO>([&](int i) { return ValueTile::read_a(rows, begin, i % kTilesO, i / kTilesO); },
                              [&](int i, OperandA a) {
                                if (i % kTilesO == 0) b = operand_of(probabilities[i / kTilesO], half != 0);
                                o[i % kTilesO] = multiply16<T>(a, b, o[i % kTilesO]);
                              });
  }

  // ---- The softmax.

  __device__ void softmax(int block) {
    if constexpr (kFeatures.shapes()) shape(block);
    hide(block);
    const float scale = kFeatures.shapes() ? 1 : p.scale;
    float most = s[0][0];
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
      _Pragma("unroll") for (int i = 0; i < 8; ++i) most = __builtin_fmaxf(most, s[t][i]);
    }
    most = __builtin_fmaxf(most, across(most)) * scale;
    if (__builtin_amdgcn_ballot_w32(most > row_max + kSlack) != 0) rescale(most);
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
      [[maybe_unused]] uint32_t bits = 0;
      if constexpr (kFeatures.dropout) {
        bits = kept.bits(kept.draw(first_row, block * kTileN + 16 * t));
        one_after_another();
      }
      float x[8];
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        x[i] = __builtin_amdgcn_exp2f(__builtin_fmaf(s[t][i], scale, -row_max));
      }
      _Pragma("unroll") for (int i = 0; i < 8; i += 2) row_sum += x[i] + x[i + 1];
      if constexpr (kFeatures.dropout) {
        _Pragma("unroll") for (int i = 0; i < 8; ++i) x[i] = (bits >> i & 1) != 0 ? x[i] * more.rp_keep : 0;
      }
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        probabilities[t][i] = rounded_pair<T>(x[2 * i], x[2 * i + 1], one);
      }
      if constexpr (kFeatures.dropout) one_after_another();
    }
  }

  // Tiles of S whose work takes registers of its own.
  __device__ static void one_after_another() { __builtin_amdgcn_sched_barrier(0); }

  __device__ void rescale(float most) {
    const float next = __builtin_fmaxf(row_max, most);
    const float factor = __builtin_amdgcn_exp2f(row_max - next);
    row_max = next;
    row_sum *= factor;
    _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) o[t] *= factor;
  }

  // The lane's first key of a block; element i of S^T's tile t is of key 16 * t + i behind it.
  __device__ int first_key(int block) const { return block * kTileN + half * 8; }

  // Scores in units of log2.
  __device__ void shape(int block) {
    const int key = first_key(block);
    [[maybe_unused]] const float distance = static_cast<float>(row + work.diagonal - key);
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        float x = s[t][i];
        if constexpr (kFeatures.softcap) {
          x = softcap.tanh(x) * softcap.outer;
        } else {
          x *= p.scale;
        }
        if constexpr (kFeatures.bias == WmmaBias::kAlibi) {
          x = __builtin_fmaf(-slope, __builtin_fabsf(distance - static_cast<float>(16 * t + i)), x);
        } else if constexpr (kFeatures.bias == WmmaBias::kElementwise) {
          x = __builtin_fmaf(bias.at(row - tile_row(), key + 16 * t + i), kLog2eOfScores, x);
        }
        s[t][i] = x;
      }
      one_after_another();
    }
  }

  // Hides keys that the lane's row does not see.
  __device__ void hide(int block) {
    if (block >= whole_first && block < whole_end) return;
    const int base = first_key(block);
    int last = work.seqlen_k - 1;
    if constexpr (kFeatures.mask) last = min(last, work.window(p).last(row));
    hide_if([last = last - base](int key) { return key > last; });
    if constexpr (kFeatures.mask) {
      if (block < whole_first) {
        hide_if([first = work.window(p).first(row) - base](int key) { return key < first; });
      }
    }
  }

  template <typename Hidden>
  __device__ void hide_if(Hidden hidden) {
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        s[t][i] = hidden(t * 16 + i) ? -__builtin_inff() : s[t][i];
      }
    }
  }

  // ---- The end.

  __device__ void end() {
    row_sum += across(row_sum);
    const float of_keys = p.sinks == nullptr ? 1 : add_sink(p.sinks[work.head]);
    const float factor = row_sum > 0 ? of_keys / row_sum : row_sum;  // a NaN stays one
    store_o(row_sum == 0 ? 0 : factor);
    if constexpr (kFeatures.dropout) {
      if (more.randval != nullptr && part == 0) store_randoms();
    }
    if (p.lse != nullptr && half == 0 && part == 0 && row < work.seqlen_q) {
      constexpr float kLn2 = 0.693147180559945309F;
      p.lse[work.batch * p.lse_batch + work.head * p.lse_nhead + work.first_q + row] =
          row_sum == 0 ? -__builtin_inff() : (row_max + __builtin_amdgcn_logf(row_sum)) * kLn2;
    }
  }

  // A score without a value joins the row's sum; returns the factor on O.
  __device__ float add_sink(float natural) {
#pragma clang fp contract(off)  // of a large sink, fma(natural, log2(e), -most) is the product's rounding
    const float sink = natural * kLog2eOfScores;
    const float most = __builtin_fmaxf(row_max, sink), of_keys = __builtin_amdgcn_exp2f(row_max - most);
    row_sum = row_sum * of_keys + __builtin_amdgcn_exp2f(sink - most);
    row_max = most;
    return of_keys;
  }

  // The random bytes once more, of all blocks that the wave has seen: in the loop there is no register left.
  __device__ void store_randoms() const {
    const int end = min(seen_end * kTileN, work.seqlen_k);
    for (int key = max(seen_first, work.first_block) * kTileN; key < end; key += 16) {
      store_random(kept.draw(first_row, key), key + lane % 16);
    }
  }

  // Stores a lane's draw: eight rows of one key.
  __device__ void store_random(const Kept::Draw& draw, int key) const {
    if (key >= work.seqlen_k) return;
    const int first = first_row + half * 8;
    uint8_t* to = more.randval + work.batch * more.randval_batch + work.head * more.randval_nhead +
                  (work.first_q + first) * more.randval_row + key;
    const uint64_t bytes = uint64_t{draw.words[1]} << 32 | draw.words[0];
    for (int i = 0; i < min(work.seqlen_q - first, 8); ++i) {
      to[i * more.randval_row] = static_cast<uint8_t>(bytes >> 8 * i);
    }
  }

  __device__ void store_o(float factor) {
    uint8_t* base = static_cast<uint8_t*>(p.o) + work.batch * p.o_strides.batch +
                    work.head * p.o_strides.nhead + (work.first_q + tile_row()) * p.o_strides.row;
    const Resource to = resource(base, rows_left() * p.o_strides.row);
    const uint32_t begin = (row - tile_row()) * p.o_strides.row;
    _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) {
      const int dim = part * kDims + t * 16 + half * 8;
      __builtin_amdgcn_raw_buffer_store_b128(rounded_eight<T>(o[t] * factor), to,
                                             dim < p.hdim_v ? begin + dim * 2 : kNowhere, 0, 0);
    }
  }

  const PingpongParams& p;
  const FwdWmmaParams& more;
  LdsByte* keys;
  LdsByte* values;
  LdsByte* shared;
  FwdWork<kTileM, false> work;
  const uint8_t* k;  // of this workgroup's head and sequence
  const uint8_t* v;
  int wave, part, lane, half, first_row, row;
  int k_read, v_read;
  int whole_first, whole_end, seen_first, seen_end;
  float one;
  float row_max, row_sum;  // the exponentials' reference; the sum is of half the keys
  RowMover<kKeys, kHdim, kWmmaBlock> key_mover;
  TurningMover<kKeys, kValueDims, kWmmaBlock> value_movers[kValueMovers];
  Softcap softcap;
  float slope;
  BiasRows<T> bias;
  Kept kept;
  OperandB q[kSteps];
  Float8 s[kTilesS], o[kTilesO];
  Dwords4 probabilities[kTilesS];
};

// Facts of an instance for the host. native/tools/catalogue/report.py reads them out of the code object.
struct FwdWmmaFacts {
  int32_t tile_m, tile_n, tile_nv, hdim_q, block_size, blocks_per_cu;
};

}  // namespace fmha

// FMHA_FWD_WMMA_KERNEL(symbol, type, head dim of the tile, mask, bias, softcap, dropout, false): a kernel and
// its facts.
#define FMHA_FWD_WMMA_KERNEL(entry, type, hdim, ...)                                             \
  using entry##_type = fmha::FwdWmma<fmha::type, hdim, fmha::WmmaFeatures{__VA_ARGS__}>;         \
  extern "C" __device__ __attribute__((used, visibility("protected")))                           \
  const fmha::FwdWmmaFacts entry##_facts = {                                                     \
      entry##_type::kTileM, entry##_type::kTileN, hdim, hdim, fmha::kWmmaBlock, 1};              \
  extern "C" __global__ __launch_bounds__(fmha::kWmmaBlock, 1) void entry(fmha::FwdWmmaParams) { \
    entry##_type::run();                                                                         \
  }
