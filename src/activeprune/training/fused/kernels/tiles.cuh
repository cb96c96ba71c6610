// How the work of a convolution is cut: units of tiles for blocks, rows of a tile for threads
#pragma once

#include "instructions.cuh"

// How the tiles of all networks are dealt out: a unit is `per_unit` tiles of one network, with sums of its own. A block
// takes whole runs of `run` units; where there are networks enough for that, it adds up a run's weight gradients itself.
struct Cut {
  int tiles, per_unit, units, networks, run;  // tiles and units: of one network; units is a multiple of run
};

// Where a block is in its run of units
struct Cursor {
  int unit, last, k, number, tile, end;  // number: of the unit in network k; tile: of network k; both ends excluded
  DEVICE explicit Cursor(const Cut& cut) {
    const long long runs = (long long)(cut.units / cut.run) * cut.networks;
    unit = (int)(runs * blockIdx.x / gridDim.x) * cut.run, last = (int)(runs * (blockIdx.x + 1) / gridDim.x) * cut.run;
    enter(cut);
  }
  DEVICE void enter(const Cut& cut) {
    k = unit / cut.units, number = unit % cut.units;
    tile = number * cut.per_unit, end = min(cut.tiles, tile + cut.per_unit);
  }
  DEVICE bool done() const { return unit >= last; }
  DEVICE void advance(const Cut& cut) {
    if (++tile < end) return;
    if (++unit < last) enter(cut);
  }
  DEVICE bool ends_unit() const { return tile + 1 == end; }
  DEVICE int row(const Cut& cut) const { return k * cut.units + number; }  // of partial sums
};

// Zeros in the tile's left and right columns, which no row of pixels ever overwrites
template <class L, int CHUNKS> DEVICE void clear_frame(u8* tile) {
  for (int i = threadIdx.x; i < L::ALL_ROWS * 2 * CHUNKS; i += L::THREADS) {
    const int side = i / CHUNKS;
    *reinterpret_cast<uint4*>(tile + (side / 2 * L::COLUMNS + side % 2 * (L::COLUMNS - 1)) * L::PITCH +
                              i % CHUNKS * 16) = make_uint4(0, 0, 0, 0);
  }
}

// Row r of a tile with its frame: its number among all rows of the network's batch, and whether it is in the image
struct Row {
  int at;
  bool inside;
};
template <class L, int SIDE> DEVICE Row row_of(int tile, int r) {
  constexpr int HEIGHT = 512 / L::COUT, STEP = SIDE / HEIGHT;  // of the output; input rows for each of its rows
  const int image = L::IMAGES > 1 ? tile * L::IMAGES + r / L::TILE_ROWS : tile / (HEIGHT / L::ROWS);
  const int h = L::IMAGES > 1 ? r % L::TILE_ROWS - 1 : tile % (HEIGHT / L::ROWS) * L::ROWS * STEP - 1 + r;
  return Row{image * SIDE + h, h >= 0 && h < SIDE};
}
