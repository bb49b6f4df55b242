// Kiln, everything a program needs: #include <kiln/kiln.h>.
#pragma once

#include <kiln/compile.h>
#include <kiln/config.h>
#include <kiln/custom_vjp.h>
#include <kiln/device.h>
#include <kiln/dlpack.h>
#include <kiln/dtype.h>
#include <kiln/error.h>
#include <kiln/grad.h>
#include <kiln/int4.h>
#include <kiln/io.h>
#include <kiln/layers.h>
#include <kiln/nn.h>
#include <kiln/ops.h>
#include <kiln/optim.h>
#include <kiln/random.h>
#include <kiln/report.h>
#include <kiln/shape.h>
#include <kiln/tensor.h>
#include <kiln/training.h>
#include <kiln/tree.h>
#include <kiln/vmap.h>
