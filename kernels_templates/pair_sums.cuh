// What the main loops of sums over pairs and the texts generated for them share. For each pair (r, c) of a
// row and a column of a matrix of the batch there are products S_p = Σ X_p[r, d] Y_p[c, d]; weights W_m are
// made of them, of r, of c and of memory; the results are sums over columns, Σ W_m Z_m[c, d], and reductions
// of rows. Rows of a launch are what its results have a row for: the rows of the pairs, or their columns.
// Each Z is one of the Y or an operand of its own, behind them. A launch may add to one sum over rows beside
// them, Σ W[r, c] X[r, d], which a launch before makes 0 and one behind stores (pair_added.cuh). A unit is
// this text; then, generated, struct Config, struct Args and the hooks; then the main loop. Config, beside
// that of pair_tiles.cuh: kWidth, columns that a hook gets at a time (2); kProducts, at most 3; kOperands, of
// columns, at most 4; kDepth0 …, their widths; kSums, kSum0 … kSum3: the operand that each multiplies; kOut,
// their width; kReductions, and kReduction0 … their kinds; kAdds, whether there is a sum over rows, kAddX and
// kAddWeight, the operand that it multiplies and the sum whose weights it has; kRowValues and kColumnValues,
// what hooks give for a row and for a column; kAligned, whether rows of all operands begin at multiples of 16
// bytes. The form, which the lowering chooses: kStages of operands of columns in shared memory and, on
// Hopper, kXStages of those of rows; kBlocks on a
// multiprocessor; kFirst, whether blocks of rows begin with the first one; kPiece, columns of a sum that are
// multiplied at a time.
//
//   const Element* x_matrix0(args, b); y_matrix0 and so on alike
//   void row_values(args, b, r, x)              x[n][0]: what depends on row r alone
//   void column_values(args, b, c, x)           x[n]: what depends on columns c and c + 1 alone
//   void early(args, b, r, c, s, x)             with kEarly, x: the value by which alone the first product
//                                               reaches weights, which get it in that product's place; s: the
//                                               first product, then values as below; early_whole: without
//                                               masks
//   void weights(args, b, r, c, s, w)           s: products of columns c and c + 1, then the row's values
//                                               and those of the columns; w: the weights of the sums, then
//                                               what is reduced; weights_whole: without masks
//   bool adds_nothing(args, b, r)               of a row: all weights are 0 in low tiles
//   void finish(args, b, r, d, left, x)         x[m]: sums for columns d and d + 1, of which `left` exist
//   void finish_row(args, b, r, x)              x[n]: reductions
//   float* added_to(args, b, tile)              with kAdds: the sum over rows of 64 columns, as
//   pair_added.cuh
//                                               has them
//   bool row_is_finite(args, b, tile)           with kAdds: of kFlagColumns rows of X
//   bool column_adds_nothing(args, b, c)        the same of a column; bool* flag(args, b, tile): where a flag
//                                               is. Both of pair_flags, and with kChecks
#pragma once

struct PairShape {
  int rows, columns, batch, blocks;  // blocks of rows
  int64 x_row[3], y_row[4];          // strides in elements; columns are adjacent
};

/// Where the copy engine finds matrices: those of rows are 0 and 1, those of columns 2 and 3. Part p of
/// matrix b is b / divisor % extent.
struct PairParts {
  int divisor[4][3], extent[4][3];
  int group;          // matrices whose blocks run side by side
  int items;          // blocks of rows of all matrices
  int again, unused;  // whether the launch makes again what one before it made, see pair_hopper.cuh
};

constexpr int kReducesSum = 0, kReducesMax = 1, kReducesMin = 2;
