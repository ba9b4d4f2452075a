/*
 * Heap of a process, for tests/control_path. This library is preloaded before libuverbs_c_stack.so. It counts the
 * allocations of the process without those made inside the software HCA. Whole pages (libmlx5's queues) are counted as
 * pinned memory instead. glibc's functions have second names, which are called. For processes with one thread.
 */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096
#define HEAD 8 /* of a chunk, before what malloc returns */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *at);

__attribute__((weak)) int uverbs_softhca_inside(void);
__attribute__((weak)) uint64_t uverbs_softhca_pinned(void);

static long bytes;

static void *count(void *at, int sign)
{
	if (at && (uintptr_t)at % PAGE && !(uverbs_softhca_inside && uverbs_softhca_inside()))
		bytes += sign * (long)(malloc_usable_size(at) + HEAD);
	return at;
}

EXPORT void *malloc(size_t size)
{
	return count(__libc_malloc(size), 1);
}

EXPORT void *calloc(size_t number, size_t size)
{
	return count(__libc_calloc(number, size), 1);
}

EXPORT void *realloc(void *at, size_t size)
{
	void *now;

	count(at, -1);
	now = __libc_realloc(at, size);
	if (!now && size)
		count(at, 1); /* What could not grow is still there. */
	return count(now, 1);
}

EXPORT void *memalign(size_t alignment, size_t size)
{
	return count(__libc_memalign(alignment, size), 1);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

EXPORT int posix_memalign(void **at, size_t alignment, size_t size)
{
	void *got = memalign(alignment, size);

	if (!got)
		return ENOMEM;
	*at = got;
	return 0;
}

EXPORT void free(void *at)
{
	count(at, -1);
	__libc_free(at);
}

/* Begins a phase: prints allocated bytes and bytes pinned by the device. */
EXPORT void uverbs_heap_report(const char *phase)
{
	char line[128];
	long now = bytes;

	snprintf(line, sizeof(line), "%s: %ld %llu", phase, now,
		 uverbs_softhca_pinned ? (unsigned long long)uverbs_softhca_pinned() : 0ull);
	puts(line);
	fflush(stdout);
}
