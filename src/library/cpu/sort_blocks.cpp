#include "library/cpu/sort_blocks.h"

#include "device/cpu/target.h"
#include "library/cpu/instruction_sets.h"
#include "library/cpu/past_caches.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12: of its own header's undefined registers
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
namespace {

constexpr std::int64_t kPieceBytes = 16;
template <class Item>
constexpr int kPiece = static_cast<int>(kPieceBytes / sizeof(Item));

/// The same number in each element.
template <class Item>
KILN_AVX512 inline __m512i each(Item x) {
  if constexpr (sizeof(Item) == 1)
    return _mm512_set1_epi8(static_cast<char>(x));
  else if constexpr (sizeof(Item) == 2)
    return _mm512_set1_epi16(static_cast<short>(x));
  else if constexpr (sizeof(Item) == 4)
    return _mm512_set1_epi32(static_cast<int>(x));
  else
    return _mm512_set1_epi64(static_cast<long long>(x));
}

/// All bits of an element are its first one. Not of bytes: these are integers, whose keys need none.
template <class Item>
KILN_AVX512 inline __m512i signs(__m512i x) {
  if constexpr (sizeof(Item) == 2)
    return _mm512_srai_epi16(x, 15);
  else if constexpr (sizeof(Item) == 4)
    return _mm512_srai_epi32(x, 31);
  else
    return _mm512_srai_epi64(x, 63);
}

/// x, or `other` where x is `what`.
template <class Item>
KILN_AVX512 inline __m512i replaced(__m512i x, __m512i what, __m512i other) {
  if constexpr (sizeof(Item) == 2)
    return _mm512_mask_mov_epi16(x, _mm512_cmpeq_epi16_mask(x, what), other);
  else if constexpr (sizeof(Item) == 4)
    return _mm512_mask_mov_epi32(x, _mm512_cmpeq_epi32_mask(x, what), other);
  else
    return _mm512_mask_mov_epi64(x, _mm512_cmpeq_epi64_mask(x, what), other);
}

/// `key`, or all bits where the number x is NaN.
template <class T>
KILN_AVX512 inline __m512i nan_is_greatest(__m512i key, __m512i x) {
  const __m512i all = _mm512_set1_epi64(-1);
  if constexpr (sizeof(T) == 2) {
    const __m512i magnitude = _mm512_and_si512(x, each<Key<T>>(static_cast<Key<T>>(kSign<T> - 1)));
    return _mm512_mask_mov_epi16(key, _mm512_cmpgt_epu16_mask(magnitude, each<Key<T>>(kInfinity<T>)), all);
  } else if constexpr (sizeof(T) == 4) {
    const __m512 v = _mm512_castsi512_ps(x);
    return _mm512_mask_mov_epi32(key, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), all);
  } else {
    const __m512d v = _mm512_castsi512_pd(x);
    return _mm512_mask_mov_epi64(key, _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q), all);
  }
}

/// key_of of a register, but for `turn`, which is all bits of a descending order.
template <class T, bool Merge>
KILN_AVX512 inline __m512i keys_in(__m512i x, __m512i turn) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>) x = _mm512_xor_si512(x, each<Key<T>>(kSign<T>));
  } else {
    constexpr int kTurnSigned = 0x1e;  // a ^ (b | c)
    const __m512i sign = each<Key<T>>(kSign<T>);
    const __m512i bits = Merge ? replaced<Key<T>>(x, sign, _mm512_setzero_si512()) : x;
    x = nan_is_greatest<T>(_mm512_ternarylogic_epi64(bits, signs<Key<T>>(bits), sign, kTurnSigned), x);
  }
  return _mm512_xor_si512(x, turn);
}

/// value_of of a register, with the same `turn`.
template <class T>
KILN_AVX512 inline __m512i values_in(__m512i key, __m512i turn) {
  key = _mm512_xor_si512(key, turn);
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>) key = _mm512_xor_si512(key, each<Key<T>>(kSign<T>));
    return key;
  } else {
    constexpr int kTurnUnsigned = 0x4b;  // a ^ (~b | c)
    const __m512i nan = each<Key<T>>(std::bit_cast<Key<T>>(quiet_nan<T>()));
    const __m512i bits =
        _mm512_ternarylogic_epi64(key, signs<Key<T>>(key), each<Key<T>>(kSign<T>), kTurnUnsigned);
    // No other number becomes the one that a key of all bits does.
    return replaced<Key<T>>(bits, each<Key<T>>(static_cast<Key<T>>(kSign<T> - 1)), nan);
  }
}

template <class Item, bool Second>
KILN_AVX512 inline __m512i in_turn(__m512i a, __m512i b) {
  if constexpr (sizeof(Item) == 1)
    return Second ? _mm512_unpackhi_epi8(a, b) : _mm512_unpacklo_epi8(a, b);
  else if constexpr (sizeof(Item) == 2)
    return Second ? _mm512_unpackhi_epi16(a, b) : _mm512_unpacklo_epi16(a, b);
  else if constexpr (sizeof(Item) == 4)
    return Second ? _mm512_unpackhi_epi32(a, b) : _mm512_unpacklo_epi32(a, b);
  else
    return Second ? _mm512_unpackhi_epi64(a, b) : _mm512_unpacklo_epi64(a, b);
}

/// Transposes the four squares that as many registers as a piece has elements have side by side: each step
/// moves a bit of the number of an element in its piece to the number of its register.
template <class Item>
KILN_AVX512 inline void turn_pieces(__m512i (&v)[kPiece<Item>]) {
  constexpr int kSide = kPiece<Item>;
#pragma GCC unroll 4
  for (int step = 1; step < kSide; step *= 2) {
    __m512i turned[kSide];
#pragma GCC unroll 16
    for (int i = 0; i < kSide / 2; ++i) {
      turned[2 * i] = in_turn<Item, false>(v[i], v[i + kSide / 2]);
      turned[2 * i + 1] = in_turn<Item, true>(v[i], v[i + kSide / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) v[i] = turned[i];
  }
}

/// The bytes of a piece's first elements, or of all of them.
template <class Item>
__mmask16 first_bytes(std::int64_t elements) {
  const auto bytes = elements * static_cast<std::int64_t>(sizeof(Item));
  return static_cast<__mmask16>(bytes >= kPieceBytes ? 0xffff : (1u << bytes) - 1);
}

/// `Whole`: all bytes of a piece, else those of the mask.
template <bool Whole>
KILN_AVX512 inline __m128i piece_at(const void* p, __mmask16 bytes) {
  return Whole ? _mm_loadu_si128(static_cast<const __m128i*>(p)) : _mm_maskz_loadu_epi8(bytes, p);
}
template <bool Whole>
KILN_AVX512 inline void put_piece(__m128i v, void* p, __mmask16 bytes) {
  Whole ? _mm_storeu_si128(static_cast<__m128i*>(p), v) : _mm_mask_storeu_epi8(p, bytes, v);
}

/// A piece of the row at p, and those of the rows as far behind it as pieces of a line have elements.
template <bool Whole, class Item>
KILN_AVX512 inline __m512i gathered(const Item* p, std::int64_t pitch, __mmask16 bytes) {
  const std::int64_t next = kPiece<Item> * pitch;
  __m512i v = _mm512_castsi128_si512(piece_at<Whole>(p, bytes));
  v = _mm512_inserti32x4(v, piece_at<Whole>(p + next, bytes), 1);
  v = _mm512_inserti32x4(v, piece_at<Whole>(p + 2 * next, bytes), 2);
  return _mm512_inserti32x4(v, piece_at<Whole>(p + 3 * next, bytes), 3);
}
template <bool Whole, class Item>
KILN_AVX512 inline void scattered(__m512i v, Item* p, std::int64_t pitch, __mmask16 bytes) {
  const std::int64_t next = kPiece<Item> * pitch;
  put_piece<Whole>(_mm512_castsi512_si128(v), p, bytes);
  put_piece<Whole>(_mm512_extracti32x4_epi32(v, 1), p + next, bytes);
  put_piece<Whole>(_mm512_extracti32x4_epi32(v, 2), p + 2 * next, bytes);
  put_piece<Whole>(_mm512_extracti32x4_epi32(v, 3), p + 3 * next, bytes);
}

/// Pieces of a row that are read, or written, one after the other: those of a line of memory, as far as
/// registers go. The first cache has few lines of rows that are a power of two apart, and they are gone at
/// the next piece.
template <class Item>
constexpr int kPiecesOfRow = std::max(1, std::min(4, 16 / kPiece<Item>));

/// What elements become on their way to lines and back.
enum class As { Keys, MergedKeys, Numbers };

/// One bit for each 16, 32 or 64 that has a float which no exchange of numbers keeps in order: NaN or -0.
/// Halves are all compared as float16, as which some great bfloat16 are NaN.
template <class T>
KILN_AVX512 inline std::uint32_t none_of_order(__m512i x) {
  if constexpr (sizeof(T) == 2) {
    const __m512i next = _mm512_add_epi16(x, each<Key<T>>(kSign<T>));  // 0: -0; else of the other sign
    const __m512i magnitude = _mm512_and_si512(x, each<Key<T>>(static_cast<Key<T>>(kSign<T> - 1)));
    return _mm512_testn_epi16_mask(next, next) |
           _mm512_cmpgt_epu16_mask(magnitude, each<Key<T>>(kInfinity<float16>));
  } else {
    constexpr int kNanOrNegativeZero = 0x85;
    if constexpr (sizeof(T) == 4)
      return _mm512_fpclass_ps_mask(_mm512_castsi512_ps(x), kNanOrNegativeZero);
    else
      return _mm512_fpclass_pd_mask(_mm512_castsi512_pd(x), kNanOrNegativeZero);
  }
}

template <class T, As How>
KILN_AVX512 inline __m512i to_lines(__m512i x, __m512i turn, std::uint32_t& others) {
  if constexpr (How != As::Numbers) {
    return keys_in < T, How == As::MergedKeys > (x, turn);
  } else {
    others |= none_of_order<T>(x);
    return _mm512_xor_si512(x, turn);
  }
}
template <class T, As How>
KILN_AVX512 inline __m512i from_lines(__m512i x, __m512i turn) {
  if constexpr (How == As::Numbers)
    return _mm512_xor_si512(x, turn);
  else
    return values_in<T>(x, turn);
}
/// The bits that a descending order turns.
template <class T, As How>
KILN_AVX512 inline __m512i turned_bits(bool descending) {
  if (!descending) return _mm512_setzero_si512();
  return How == As::Numbers ? each<Key<T>>(kSign<T>) : _mm512_set1_epi64(-1);
}

template <class T, As How, bool Whole, int Pieces>
KILN_AVX512 inline void block_of_lines(const Key<T>* from, std::int64_t pitch, __m512i turn, Key<T>* to,
                                       std::int64_t to_pitch, __mmask16 bytes, std::uint32_t& others) {
  constexpr int kSide = kPiece<Key<T>>;
  __m512i v[Pieces][kSide];
#pragma GCC unroll 16
  for (int e = 0; e < kSide; ++e)
#pragma GCC unroll 4
    for (int p = 0; p < Pieces; ++p)
      v[p][e] = to_lines<T, How>(gathered<Whole>(from + e * pitch + p * kSide, pitch, bytes), turn, others);
#pragma GCC unroll 4
  for (int p = 0; p < Pieces; ++p) {
    turn_pieces<Key<T>>(v[p]);
#pragma GCC unroll 16
    for (int e = 0; e < kSide; ++e) _mm512_storeu_si512(to + (p * kSide + e) * to_pitch, v[p][e]);
  }
}

template <class T, As How, bool Whole, int Pieces>
KILN_AVX512 inline void block_of_rows(const Key<T>* from, __m512i turn, Key<T>* to, std::int64_t pitch,
                                      __mmask16 bytes) {
  constexpr int kSide = kPiece<Key<T>>;
  __m512i v[Pieces][kSide];
#pragma GCC unroll 4
  for (int p = 0; p < Pieces; ++p) {
#pragma GCC unroll 16
    for (int e = 0; e < kSide; ++e)
      v[p][e] = from_lines<T, How>(_mm512_loadu_si512(from + (p * kSide + e) * kNetworkRows<Key<T>>), turn);
    turn_pieces<Key<T>>(v[p]);
  }
#pragma GCC unroll 16
  for (int e = 0; e < kSide; ++e)
#pragma GCC unroll 4
    for (int p = 0; p < Pieces; ++p) scattered<Whole>(v[p][e], to + e * pitch + p * kSide, pitch, bytes);
}

/// Returns whether there are others than numbers (none_of_order), if they are what lines are made of.
template <class T, As How>
KILN_AVX512 inline bool lines_of(const T* rows, std::int64_t pitch, std::int64_t columns, __m512i turn,
                                 Key<T>* to, std::int64_t to_pitch) {
  constexpr int kSide = kPiece<Key<T>>;
  const auto* const from = reinterpret_cast<const Key<T>*>(rows);
  constexpr int kPieces = kPiecesOfRow<Key<T>>;
  std::uint32_t others = 0;
  std::int64_t c = 0;
  for (; c + kPieces * kSide <= columns; c += kPieces * kSide)
    block_of_lines<T, How, true, kPieces>(from + c, pitch, turn, to + c * to_pitch, to_pitch, 0, others);
  for (; c + kSide <= columns; c += kSide)
    block_of_lines<T, How, true, 1>(from + c, pitch, turn, to + c * to_pitch, to_pitch, 0, others);
  if (c < columns)
    block_of_lines<T, How, false, 1>(from + c, pitch, turn, to + c * to_pitch, to_pitch,
                                     first_bytes<Key<T>>(columns - c), others);
  return others != 0;
}

template <class T>
KILN_AVX512 void lines_avx512(const T* from, std::int64_t pitch, std::int64_t columns, bool merge_zeros,
                              bool descending, Key<T>* to) {
  const __m512i turn = turned_bits<T, As::Keys>(descending);
  constexpr std::int64_t kLine = kNetworkRows<Key<T>>;
  if constexpr (!std::is_integral_v<T>)
    if (merge_zeros) return void(lines_of<T, As::MergedKeys>(from, pitch, columns, turn, to, kLine));
  lines_of<T, As::Keys>(from, pitch, columns, turn, to, kLine);
}

template <class T>
KILN_AVX512 bool number_lines_avx512(const T* from, std::int64_t pitch, std::int64_t columns, bool descending,
                                     Key<T>* to) {
  return !lines_of<T, As::Numbers>(from, pitch, columns, turned_bits<T, As::Numbers>(descending), to,
                                   kNetworkRows<Key<T>>);
}

template <class T, As How>
KILN_AVX512 void rows_avx512(const Key<T>* from, std::int64_t columns, bool descending, T* rows,
                             std::int64_t pitch) {
  constexpr int kSide = kPiece<Key<T>>;
  constexpr std::int64_t kLine = kNetworkRows<Key<T>>;
  const __m512i turn = turned_bits<T, How>(descending);
  auto* const to = reinterpret_cast<Key<T>*>(rows);
  constexpr int kPieces = kPiecesOfRow<Key<T>>;
  std::int64_t c = 0;
  for (; c + kPieces * kSide <= columns; c += kPieces * kSide)
    block_of_rows<T, How, true, kPieces>(from + c * kLine, turn, to + c, pitch, 0);
  for (; c + kSide <= columns; c += kSide)
    block_of_rows<T, How, true, 1>(from + c * kLine, turn, to + c, pitch, 0);
  if (c < columns)
    block_of_rows<T, How, false, 1>(from + c * kLine, turn, to + c, pitch, first_bytes<Key<T>>(columns - c));
}

template <class T>
KILN_AVX512 void past_avx512(const T* from, std::int64_t lines, T* to) {
  constexpr std::int64_t kElements = kPastLine / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < lines; ++i) line_past_avx512(from + i * kElements, to + i * kElements);
}

template <class Item>
KILN_AVX512 void squares_avx512(const Item* from, std::int64_t from_pitch, std::int64_t from_square, Item* to,
                                std::int64_t to_pitch, std::int64_t to_square, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k, from += from_square, to += to_square)
    lines_of<Item, As::Keys>(from, from_pitch, kNetworkRows<Item>, _mm512_setzero_si512(), to, to_pitch);
}

}  // namespace
#pragma GCC diagnostic pop
#endif

template <class T>
BlockFunctions<T> block_functions() {
#if defined(__x86_64__)
  if (host_instruction_sets().avx512) {
    BlockFunctions<T> f{lines_avx512<T>, rows_avx512<T, As::Keys>, nullptr, nullptr, past_avx512<T>};
    if constexpr (!std::is_integral_v<T>)
      f.number_lines = number_lines_avx512<T>, f.number_rows = rows_avx512<T, As::Numbers>;
    return f;
  }
#endif
  return {};
}
#define KILN_DTYPE(Name, Type, ...) template BlockFunctions<Type> block_functions<Type>();
#include <kiln/dtype.def>
#undef KILN_DTYPE

template <class Item>
TransposeSquares<Item> transpose_squares() {
#if defined(__x86_64__)
  // Without permutations of bytes (sort_lines.h) those of one byte are better off by registers of 16 bytes.
  if constexpr (sizeof(Item) > 1)
    if (host_instruction_sets().avx512) return squares_avx512<Item>;
#endif
  return nullptr;
}
template TransposeSquares<std::uint8_t> transpose_squares<std::uint8_t>();
template TransposeSquares<std::uint16_t> transpose_squares<std::uint16_t>();
template TransposeSquares<std::uint32_t> transpose_squares<std::uint32_t>();
template TransposeSquares<std::uint64_t> transpose_squares<std::uint64_t>();

}  // namespace kiln::cpu
