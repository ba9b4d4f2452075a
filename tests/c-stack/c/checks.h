/* Checks that a program prints line by line, and counts. */
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

/* No object, for this reason. */
#define NONE(name, made, why)                                \
	do {                                                 \
		errno = 0;                                   \
		check(name, (made) == NULL ? errno : 0, why); \
	} while (0)

/* How many there were: the program's last line, and its status. */
static inline int checked(void)
{
	printf("%d checks, %d failed\n", checks, failed);
	return failed != 0;
}

#endif
