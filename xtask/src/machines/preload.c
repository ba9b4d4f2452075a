/* QEMU's user mode refuses MADV_DONTFORK, which no test here depends on: said to be done. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int madvise(void *at, size_t len, int advice)
{
	if (advice == MADV_DONTFORK)
		return 0;
	return syscall(SYS_madvise, at, len, advice);
}
