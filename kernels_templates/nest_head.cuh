// What kernels with the main loop nest_pairs are told by their launch.
#pragma once

struct NestShape {
  int rows, columns, depth;  // i, j, k
  int parts;                 // of the columns, each a block's
};
