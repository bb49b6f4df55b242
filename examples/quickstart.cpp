// The program of README.md. Everything between the two markers stands there word for word.
// [readme]
#include <kiln/kiln.h>
#include <iostream>
using namespace kiln;

int main() {
  const Tensor x = sin(arange(12.0)).reshape({3, 4});
  const Tensor e = exp(x - max(x, -1, true));  // recorded, nothing runs yet
  const Tensor p = e / sum(e, -1, true);       // a softmax along the rows
  std::cout << p << "\n";                      // now a value is needed
  std::cout << statistics().launches << " kernel ran\n";
}
// [readme]
