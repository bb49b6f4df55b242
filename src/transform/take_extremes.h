// take_extremes: the position of the first of a descending order is argmax's. Of integers that element is the
// greatest; of floats it is the one at that position, which may be a zero of either sign. The second is the
// first of what is left. Where only the values are asked for, floats may be compared with numbers alone,
// and what a function that grows makes of them is made of the extremes.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

struct SecondCosts {
  bool seconds = false;  // the first two of an order are taken as well
  int most_maps = 0;     // … where no more maps make the elements, of much smaller values; 0: any
  bool by_values =
      false;  // floats whose positions nobody asks for, without positions; a zero has either sign
};

/// The first two of an order are taken where maps make the elements: two reductions that depend on each other
/// make these as they read them, and an order would have them stored. Post: values are the same, but for
/// zeros taken by values. A NaN is the greatest element either way, and of equal elements the first has the
/// position.
Renumbering take_extremes(ir::Graph& graph, const SecondCosts& costs = {});

}  // namespace kiln::transform
