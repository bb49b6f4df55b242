#include "inputs.h"

#include <kiln/error.h>

#include <png.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <memory>

namespace kiln::tool {
namespace {

/// Comma-separated numbers.
std::vector<double> numbers(const std::string& line) {
  std::vector<double> out;
  for (const char* at = line.c_str(); *at;) {
    char* end = nullptr;
    out.push_back(std::strtod(at, &end));
    if (end == at) throw UserError("[data] not a number: '" + line.substr(0, 40) + "'");
    at = *end == ',' ? end + 1 : end;
    while (*at == '\r' || *at == '\n') ++at;
  }
  return out;
}

}  // namespace

std::string find_data(const std::string& file) {
  std::vector<std::string> directories = {KILN_DATA_DIR};
  char self[4096];
  if (const ssize_t n = readlink("/proc/self/exe", self, sizeof self); n > 0) {
    std::string bin(self, static_cast<std::size_t>(n));
    bin.erase(bin.find_last_of('/'));
    directories.push_back(bin + "/../../../examples/data");
    directories.push_back(bin + "/../share/kiln/data");
  }
  for (const std::string& directory : directories)
    if (const std::string path = directory + "/" + file; access(path.c_str(), R_OK) == 0) return path;
  return "";
}

Photo read_photo(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&image, path.c_str()))
    throw UserError("[data] " + path + ": " + image.message);
  image.format = PNG_FORMAT_RGB;
  Photo photo;
  photo.height = image.height;
  photo.width = image.width;
  photo.rgb.resize(PNG_IMAGE_SIZE(image));
  if (!png_image_finish_read(&image, nullptr, photo.rgb.data(), 0, nullptr))
    throw UserError("[data] " + path + ": " + image.message);
  return photo;
}

void write_photo(const std::string& path, const Photo& photo) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.height = static_cast<png_uint_32>(photo.height);
  image.width = static_cast<png_uint_32>(photo.width);
  if (!png_image_write_to_file(&image, path.c_str(), 0, photo.rgb.data(), 0, nullptr))
    throw UserError("[data] " + path + ": " + image.message);
}

Digits read_digits(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw UserError("[data] cannot open " + path);
  Digits digits;
  char line[1024];
  while (gzgets(file.get(), line, sizeof line)) {
    const std::vector<double> row = numbers(line);
    if (row.size() != 65)
      throw UserError("[data] " + path + ": a line has " + std::to_string(row.size()) + " numbers, not 65");
    digits.pixels.insert(digits.pixels.end(), row.begin(), row.end() - 1);
    digits.labels.push_back(static_cast<int>(row.back()));
  }
  return digits;
}

std::vector<Layer> read_layers(const std::string& path) {
  std::ifstream in(path);
  std::vector<Layer> layers;
  for (std::string line; std::getline(in, line);) {
    const std::vector<double> row = numbers(line);
    const auto inputs = static_cast<std::int64_t>(row.size()) - 1;
    if (inputs < 1) throw UserError("[data] " + path + ": a line without weights");
    if (layers.empty() || layers.back().inputs != inputs) layers.push_back({0, inputs, {}, {}});
    Layer& layer = layers.back();
    layer.outputs += 1;
    layer.weight.insert(layer.weight.end(), row.begin(), row.end() - 1);
    layer.bias.push_back(static_cast<float>(row.back()));
  }
  return layers;
}

}  // namespace kiln::tool
