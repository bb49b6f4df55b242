// Of several values of one place the last stays: the greatest k claims it. Threads begin with the greatest,
// and look before they claim: where many values have one place, most then find it taken and only read.
#pragma once

extern "C" __global__ void __launch_bounds__(256) clear_claims(uint64* claims, const Index* indices, Grid g) {
  KILN_EACH(i, g.count) {
    const Spot s = spot_of(g, i);
    int64 position;
    if (resolve(indices[s.index], g.extent, position)) claims[s.slot + position * g.slot_step] = 0;
  }
}

extern "C" __global__ void __launch_bounds__(256) claim(uint64* claims, const Index* indices, Grid g) {
  KILN_EACH(i, g.count) {
    const Spot s = spot_of(g, g.count - 1 - i);
    int64 position;
    if (!resolve(indices[s.index], g.extent, position)) continue;
    uint64* const at = claims + s.slot + position * g.slot_step;
    if (*(volatile uint64*)at < uint64(s.k)) atomicMax(at, uint64(s.k));
  }
}

/// No claims: no two values have one place.
extern "C" __global__ void __launch_bounds__(256)
    set(Bits* out, const Bits* values, const Index* indices, const uint64* claims, Grid g) {
  KILN_EACH(i, g.count) {
    const Spot s = spot_of(g, i);
    int64 position;
    if (!resolve(indices[s.index], g.extent, position)) continue;
    if (claims && claims[s.slot + position * g.slot_step] != uint64(s.k)) continue;
    out[s.place + position * g.place_step] = values[s.value];
  }
}
