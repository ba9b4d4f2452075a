/* Checks, printed a line each, and counted. */
#ifndef CHECKS_H
#define CHECKS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

static int checks, failed;

static inline void check(const char *name, int64_t got, int64_t wanted)
{
	checks++;
	failed += got != wanted;
	if (got == wanted)
		printf("ok %s\n", name);
	else
		printf("FAILED %s: %lld, wanted %lld\n", name, (long long)got, (long long)wanted);
}

/* Checks that no object was created, with this errno. */
#define NONE(name, made, why)                                \
	do {                                                 \
		errno = 0;                                   \
		check(name, (made) == NULL ? errno : 0, why); \
	} while (0)

/* Prints the number of checks as the last line; returns the exit status. */
static inline int checked(void)
{
	printf("%d checks, %d failed\n", checks, failed);
	return failed != 0;
}

#endif
