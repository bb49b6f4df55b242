#define KILN_VM_ISA avx512
#define KILN_VM_TABLE vm_loops_avx512
#if defined(__x86_64__)
#include "codegen/vm/vm_loops_impl.h"
#else
#include "codegen/vm/vm_loops.h"
const kiln::codegen::VmLoops* kiln::codegen::vm_loops_avx512() { return nullptr; }
#endif
