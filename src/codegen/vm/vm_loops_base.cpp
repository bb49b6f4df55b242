#define KILN_VM_ISA base
#define KILN_VM_TABLE vm_loops_base
#include "codegen/vm/vm_loops_impl.h"
