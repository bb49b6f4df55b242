// Kiln, everything a program needs: #include <kiln/kiln.h>.
#pragma once

#include <kiln/config.h>
#include <kiln/device.h>
#include <kiln/dlpack.h>
#include <kiln/dtype.h>
#include <kiln/error.h>
#include <kiln/io.h>
#include <kiln/nn.h>
#include <kiln/ops.h>
#include <kiln/random.h>
#include <kiln/report.h>
#include <kiln/shape.h>
#include <kiln/tensor.h>
