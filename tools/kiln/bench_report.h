// What a person and a program read of the bench: a table, JSON, a picture.
#pragma once

#include "bench_device.h"

#include <string>
#include <vector>

namespace kiln::tool {

/// The measured rows of one workload; any may be missing.
struct Measured {
  const Row* fused = nullptr;
  const Row* eager = nullptr;
  const Row* vm = nullptr;
};
std::vector<Measured> by_workload(const std::vector<Row>& rows);

std::string table_header();
std::string table_line(const Measured& measured);
std::string json_text(const std::vector<Row>& rows, const BenchDevice& device);
std::string svg_text(const std::vector<Row>& rows, const BenchDevice& device);

}  // namespace kiln::tool
