// What a GPU takes for single rows at random places: a copy's speed says nothing about it.
#pragma once

#include "bench_device.h"

#include "device/cuda/stream.h"

#include <functional>

namespace kiln::tool {

/// In the second cache: of rows of whole sectors that are read, and of sums of float32 that are added to (0:
/// vectors of them are not added at once).
struct RandomRates {
  RandomRate read, add;
};

/// `time`: milliseconds of what it enqueues.
RandomRates measure_random_rates(int device, cuda::Stream stream,
                                 const std::function<double(const std::function<void()>&)>& time);

}  // namespace kiln::tool
