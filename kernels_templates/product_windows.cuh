// Operands that are windows of an array, as a convolution's are: a line of the operand is a window, its
// elements are those of the window with all channels of each, one element after the other. Main loops that
// read windows where they lie find them with this. Must not know of tiles or hooks.
#pragma once

/// Axes that windows move along are the innermost first. Channels of one group; groups lie beside each other.
/// `first` is where the first window begins, which may be before the array. Strides in elements. Of
/// product_strips alone: what a tile has, channels of a stage, tiles; blocks of the launch, bytes of one.
/// Mirrored by lower/region_product_windows.cpp.
struct Windows {
  int channels, groups;
  int count[3], taps[3], step[3], gap[3], first[3], extent[3];
  int strips_x, strips_y, strips_images, depth, tiles, blocks, shared, unused;
  int64 stride[3], image, channel;
};

/// Where a window begins.
template <int Axes>
struct WindowPlace {
  int at[Axes], image;

  /// The number-th window of all images. Behind the last one: of an image that is not there.
  __device__ __forceinline__ WindowPlace(const Windows& w, int number) {
#pragma unroll
    for (int i = 0; i < Axes; ++i) {
      const int next = number / w.count[i];
      at[i] = w.first[i] + (number - next * w.count[i]) * w.step[i];
      number = next;
    }
    image = number;
  }
};

/// Which element of the windows, from its first channel on.
template <int Axes>
struct WindowTap {
  int at[Axes] = {}, number = 0;

  __device__ __forceinline__ void next(const Windows& w) {
    ++number;
#pragma unroll
    for (int i = 0; i < Axes; ++i) {
      if (++at[i] < w.taps[i]) return;
      at[i] = 0;
    }
  }
};

template <int Axes>
__device__ __forceinline__ int taps_of(const Windows& w) {
  int n = w.taps[0];
#pragma unroll
  for (int i = 1; i < Axes; ++i) n *= w.taps[i];
  return n;
}

/// Which matrix of a batch has which windows: groups are the inner part of the batch. Where images are not
/// the outer one, there is one batch of each group, and lines count on through the images.
struct WindowBatch {
  int first, group;  // window, group of channels
  __device__ __forceinline__ WindowBatch(const Windows& w, int b, int lines) {
    const int image = b / w.groups;
    first = image * lines;
    group = b - image * w.groups;
  }
};
