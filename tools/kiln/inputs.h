// The real inputs under examples/data, read into host memory: for the tool's bench and for the examples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::tool {

/// The path of a file of examples/data: in the source tree this was built from, or near the executable. Empty
/// when there is none.
std::string find_data(const std::string& file);

struct Photo {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> rgb;  // row-major, 3 channels
};
/// Throws UserError when the file cannot be read.
Photo read_photo(const std::string& path);
void write_photo(const std::string& path, const Photo& photo);

struct Digits {
  std::vector<float> pixels;  // (images, 64), 0 … 16
  std::vector<int> labels;
};
Digits read_digits(const std::string& path);

/// A fully connected layer: weights (outputs, inputs) and biases.
struct Layer {
  std::int64_t outputs = 0, inputs = 0;
  std::vector<float> weight, bias;
};
/// Consecutive lines of equal length are one layer.
std::vector<Layer> read_layers(const std::string& path);

}  // namespace kiln::tool
