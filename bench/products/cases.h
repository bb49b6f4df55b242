// What bench/products checks and times.
#pragma once

inline int greatest_align(std::int64_t bytes) {
  for (int align : {16, 8, 4})
    if (bytes % align == 0) return align;
  return 2;
}

/// Every template × layout × narrowest copies.
inline std::vector<Unit> checked_units() {
  std::vector<Unit> units;
  const auto add = [&](ProductKind kind, int tile, int products, bool a, bool b, int align, int width,
                       Epilogue epilogue, const char* element = "bf16") {
    Unit unit;
    unit.choice = {kind, tile, products};
    unit.element = element;
    unit.a_k_major = a;
    unit.b_k_major = b;
    unit.a_align = unit.b_align = align;
    unit.width = width;
    unit.epilogue = epilogue;
    units.push_back(unit);
  };
  for (int tile = 0; tile < 3; ++tile)
    for (int layout = 0; layout < 4; ++layout)
      add(ProductKind::Mma, tile, 1, layout & 1, layout & 2, 16, 8, Epilogue::Store);
  for (int layout = 0; layout < 4; ++layout)
    for (int align : {8, 4, 2})
      add(ProductKind::Mma, 1, 1, layout & 1, layout & 2, align, 2, Epilogue::Store);
  for (int tile = 0; tile < 3; ++tile)
    add(ProductKind::Mma, tile, 2, true, tile != 1, 16, 8, Epilogue::SiluTimes);
  add(ProductKind::Mma, 2, 2, true, false, 16, 8, Epilogue::SiluTimes);
  for (int layout = 0; layout < 4; ++layout)
    for (int align : {8, 4, 2})
      add(ProductKind::Mma, 2, 1, layout & 1, layout & 2, align, 2, Epilogue::Store);
  add(ProductKind::Mma, 1, 1, true, true, 16, 8, Epilogue::BiasGelu, "f16");
  for (int tile = 0; tile < 3; ++tile)
    for (int layout = 0; layout < 4; ++layout)
      add(ProductKind::Wgmma, tile, 1, layout & 1, layout & 2, 16, 8, Epilogue::Store);
  for (int tile = 0; tile < 3; ++tile)
    add(ProductKind::Wgmma, tile, 2, true, tile != 1, 16, 8, Epilogue::SiluTimes);
  add(ProductKind::Wgmma, 0, 1, true, true, 16, 2, Epilogue::BiasGelu, "f16");
  for (int tile = 0; tile < 3; ++tile)
    for (int products = 1; products <= (tile < 2 ? 2 : 1); ++products)
      for (int rows : {8, 16}) {
        add(ProductKind::Decode, tile, products, true, tile == 0, 16, 8,
            products == 1 ? Epilogue::Store : Epilogue::SiluTimes);
        units.back().choice.rows = rows;
        units.back().choice.warps = rows == 8 ? 8 : 4;
      }
  // floats, whose k is contiguous for wgmma, and 8-bit floats
  for (std::size_t i = 0, count = units.size(); i < count; ++i) {
    const Unit& u = units[i];
    if (u.choice.kind == ProductKind::Decode || u.element == "f16" || u.a_align == 2) continue;
    if (u.choice.kind == ProductKind::Wgmma && !(u.a_k_major && u.b_k_major)) continue;
    units.push_back(u.with("float"));
    if (u.a_k_major && u.b_k_major && u.a_align == 16)
      for (const char* bytes : {"e4m3", "e5m2"}) units.push_back(u.with(bytes));
  }
  return units;
}

/// Shapes whose operands have the alignment that the unit was made for: rows of `pad` more elements.
inline std::vector<Shape> checked_shapes(const Unit& unit) {
  static constexpr int kExtents[][4] = {
      {1, 1, 1, 1},      {128, 256, 64, 1},    {128, 256, 32, 1}, {64, 64, 16, 2},    {129, 257, 65, 2},
      {100, 300, 77, 1}, {1000, 520, 1000, 1}, {7, 2000, 333, 3}, {2000, 9, 129, 1},  {383, 511, 4096, 1},
      {5, 5, 0, 1},      {640, 768, 96, 2},    {33, 65, 8, 5},    {512, 512, 512, 1}, {2500, 3000, 200, 1}};
  std::vector<Shape> shapes;
  const int align = std::min(unit.a_align, unit.b_align) / unit.bytes(), whole = 16 / unit.bytes();
  for (const auto& e : kExtents) {
    if (unit.choice.kind == ProductKind::Wgmma && e[2] == 0) continue;
    Shape shape{e[0], e[1], e[2], e[3]};
    if (unit.choice.kind == ProductKind::Decode) shape.m = (shape.m - 1) % 40 + 1;
    // the least padding that makes the rows of both operands multiples of the alignment, and the result's not
    const int a_row = unit.a_k_major ? shape.k : shape.m, b_row = unit.b_k_major ? shape.k : shape.n;
    if (align > 1 && (a_row - b_row) % align != 0) {  // one padding cannot serve both
      const int row = (std::max(a_row, b_row) + align - 1) / align * align;
      (unit.a_k_major ? shape.k : shape.m) = (unit.b_k_major ? shape.k : shape.n) = row;
    }
    const int row = unit.a_k_major ? shape.k : shape.m;
    shape.pad = (align - row % align) % align;
    const int other = unit.b_k_major ? shape.k : shape.n;
    if ((other + shape.pad) % align != 0) continue;
    shape.shift = align == whole ? 0 : align;
    shapes.push_back(shape);
    if (align < whole) {
      shape.pad += align;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

inline std::vector<std::pair<Unit, Shape>> rated() {
  std::vector<std::pair<Unit, Shape>> out;
  const auto unit = [](ProductKind kind, int tile, int products = 1, Epilogue epilogue = Epilogue::Store,
                       bool a = true, bool b = true, int align = 16) {
    Unit u;
    u.choice = {kind, tile, products};
    u.epilogue = epilogue;
    u.a_k_major = a;
    u.b_k_major = b;
    u.a_align = u.b_align = align;
    if (align < 16) u.width = 2;
    return u;
  };
  const Shape cube{8192, 8192, 8192}, small{4096, 4096, 4096}, wide{8192, 4096, 11008},
      linear{8192, 4096, 4096};
  const ProductKind mma = ProductKind::Mma;
  for (int tile : {0, 1})
    for (const Shape& s : {cube, small}) out.push_back({unit(mma, tile), s});
  out.push_back({unit(mma, 0, 1, Epilogue::Store, true, false), small});
  out.push_back({unit(mma, 0, 1, Epilogue::Store, false, true), small});
  out.push_back({unit(mma, 0, 1, Epilogue::BiasGelu), linear});
  out.push_back({unit(mma, 0, 2, Epilogue::SiluTimes), linear});
  out.push_back({unit(mma, 2), {1024, 1024, 1024}});
  out.push_back({unit(mma, 1), {1024, 1024, 1024}});
  for (int align : {8, 4, 2}) {
    Shape s{4096, 4096, 4096};
    s.pad = align / 2;
    for (int tile : {1, 2}) out.push_back({unit(mma, tile, 1, Epilogue::Store, true, true, align), s});
  }
  const ProductKind wgmma = ProductKind::Wgmma;
  for (int tile : {0, 1, 2})
    for (const Shape& s : {cube, small, wide}) out.push_back({unit(wgmma, tile), s});
  for (int tile : {0, 1}) {
    Unit u = unit(wgmma, tile);
    u.width = 2;
    out.push_back({u, small});
    out.push_back({unit(wgmma, tile, 1, Epilogue::Store, true, false), small});
    out.push_back({unit(wgmma, tile, 1, Epilogue::Store, false, true), small});
    out.push_back({unit(wgmma, tile), linear});
    out.push_back({unit(wgmma, tile, 1, Epilogue::BiasGelu), linear});
    out.push_back({unit(wgmma, tile, 2, Epilogue::SiluTimes), linear});
  }
  for (const Shape& s : {small, cube, wide, Shape{4112, 3904, 4064}, Shape{16384, 2048, 2048}})
    for (int tile : {0, 1, 2}) {
      out.push_back({unit(wgmma, tile).with("e4m3"), s});
      if (tile == 0) out.push_back({unit(wgmma, tile).with("e5m2"), s});
    }
  for (int tile : {0, 1, 2}) out.push_back({unit(wgmma, tile, 1, Epilogue::BiasGelu).with("e4m3"), linear});
  out.push_back({unit(wgmma, 0, 2, Epilogue::SiluTimes).with("e4m3"), linear});
  const Shape odd{4100, 3900, 4060}, narrow{16384, 320, 1024};
  for (const Shape& s : {small, cube, linear, odd, narrow}) {
    for (int tile : {0, 1, 2}) out.push_back({unit(wgmma, tile).with("float"), s});
    for (int layout = 0; layout < 4; ++layout)
      for (int tile : {0, 1})
        out.push_back({unit(mma, tile, 1, Epilogue::Store, layout & 1, layout & 2).with("float"), s});
  }
  out.push_back({unit(wgmma, 0, 2, Epilogue::SiluTimes).with("float"), linear});
  return out;
}

inline std::vector<std::pair<Unit, Shape>> decoded() {
  std::vector<std::pair<Unit, Shape>> out;
  for (int tile = 0; tile < 3; ++tile) {
    Unit unit;
    unit.choice = {ProductKind::Decode, tile, 1};
    unit.b_k_major = tile == 0;
    static constexpr int kWeights[][2] = {{4096, 11008}, {11008, 4096}, {4096, 4096},
                                          {1024, 4096},  {32000, 4096}, {512, 512}};
    for (int m : {1, 16})
      for (int warps : {4, 8}) {
        unit.choice.rows = m <= 8 ? 8 : 16;
        unit.choice.warps = warps;
        for (const auto& [n, k] : kWeights) out.push_back({unit, {m, n, k}});
      }
  }
  return out;
}
