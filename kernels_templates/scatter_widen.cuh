// Halves that are added or multiplied meet as floats beside the output, and are rounded once.
#pragma once

/// Elements that values will meet, as they are kept meanwhile.
extern "C" __global__ void __launch_bounds__(256)
    widen(Kept* wide, const Element* out, const Index* indices, Grid g) {
  KILN_EACH(i, g.count) {
    const Spot s = spot_of(g, i);
    int64 position;
    if (!resolve(indices[s.index], g.extent, position)) continue;
    const int64 place = s.place + position * g.place_step;
    assign(wide[place], out[place]);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    narrow(Element* out, const Kept* wide, const Index* indices, Grid g) {
  KILN_EACH(i, g.count) {
    const Spot s = spot_of(g, i);
    int64 position;
    if (!resolve(indices[s.index], g.extent, position)) continue;
    const int64 place = s.place + position * g.place_step;
    assign(out[place], wide[place]);
  }
}

/// The same for all places, where there are fewer of them than values. Elements that no value met keep their
/// bits.
extern "C" __global__ void __launch_bounds__(256) widen_all(Kept* wide, const Element* out, int64 places) {
  KILN_EACH(i, places) { assign(wide[i], out[i]); }
}

extern "C" __global__ void __launch_bounds__(256) narrow_all(Element* out, const Kept* wide, int64 places) {
  KILN_EACH(i, places) {
    Kept before;
    assign(before, out[i]);
    if (same_bits<KeptBits>(before) != same_bits<KeptBits>(wide[i])) assign(out[i], wide[i]);
  }
}
