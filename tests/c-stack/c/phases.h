/* Phases of a program: marks for a tracer (src/trace.rs), or times. */
#ifndef PHASES_H
#define PHASES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MARK -1000 /* src/trace.rs */

/* Function of c/heap.c, if it is preloaded. */
__attribute__((weak)) void uverbs_heap_report(const char *phase);

static int only_times, phases;
static struct {
	const char *name;
	struct timespec began;
} times[64];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

#define NEED(condition, what)      \
	do {                       \
		if (!(condition))  \
			die(what); \
	} while (0)

static void phase(const char *name)
{
	static char line[64];
	int length;

	if (only_times) {
		NEED(phases < 64, "too many phases");
		times[phases].name = name;
		clock_gettime(CLOCK_MONOTONIC, &times[phases++].began);
		return;
	}
	length = snprintf(line, sizeof(line), "# %s", name);

	if (write(MARK, line, length) >= 0)
		die("a mark was written");
	if (uverbs_heap_report)
		uverbs_heap_report(name);
}

static void print_times(void)
{
	for (int i = 0; i + 1 < phases; i++) {
		struct timespec a = times[i].began, b = times[i + 1].began;

		printf("%s: %lld\n", times[i].name, (b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec);
	}
}

#endif
