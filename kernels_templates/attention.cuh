// What attention's main loop and the text generated for it share: O[b, i, d] = Σⱼ w(t[b, i, j]) · V[b, j, d],
// where t is a function of S[b, i, j] = Σₖ Q[b, i, k] · K[b, j, k], of i, j and memory, and w(t) is exp(t -
// m) times a factor, m being the row's greatest t. A unit is this text; then, generated, struct Config,
// struct Args and the hooks; then the main loop. Config: Element, of q, k and v (bf16 or f16); kWidth,
// columns that a hook gets at a time (2); kHead, columns of q and k; kOut, of v and the result (both at most
// 256); kAligned, whether rows of q, k and v begin at multiples of 16 bytes; kSums, running sums of a row;
// kBase2, whether exponentials are powers of 2; kScaled, whether hooks leave a factor of all scores to
// score_scale; kMasks, whether there are masks, so that t is simpler in tiles that they leave whole; kLow,
// whether tiles may be left out; kChecks, whether the launch itself finds the flags of tiles. The form, which
// the lowering chooses: kRows, of a block; kColumns, of a tile; kWarps, those with rows, each kFragments
// times 16; kPiece, result columns that are multiplied at a time (attention_mma has all in one piece);
// kRowResults, whether values of rows are stored; kFinish, columns that `finish` gets (2 or 8); kSlack, to
// what power of 2 weights may rise.
//
//   const Element* q_matrix(args, b)            k_matrix, v_matrix alike
//   void score(args, b, i, j, s, t)             t of columns j and j + 1; with kScaled, t over score_scale
//   void score_whole(args, b, i, j, s, t)       the same without masks; with kScaled, over score_inside too
//   float score_scale(args)                     a positive factor; score_inside any: one of them is 1
//   int tile_kind, bool is_finite               see pair_tiles.cuh
//   bool* flag(args, b, tile)                   with kChecks: where a flag is
//   float tile_greatest(args, b)                t everywhere in a low tile; with kScaled, over score_scale
//   void weights(args, b, i, j, p, w)           w[0]: p times the factor of v's weights; w[1 + n]: of sum n
//   void finish(args, b, i, d, left, x)         x[0]: sums for columns d and on, of which `left` exist;
//                                               x[1]: m; x[2 + n]: sum n
//   void finish_row(args, b, i, x)              x[0]: m, x[1 + n]: sum n
#pragma once

struct AttentionShape {
  int rows, columns, batch, blocks;  // blocks of rows
  int64 q_row, k_row, v_row;         // strides in elements; columns are adjacent
};

/// Where the copy engine finds the matrices of q, k and v: part p of matrix b is b / divisor % extent.
struct AttentionParts {
  int divisor[3][3], extent[3][3];
  int group;          // matrices whose blocks run side by side
  int items;          // blocks of rows of all matrices
  int again, unused;  // whether the launch makes again what one before it made, see pair_hopper.cuh
};
