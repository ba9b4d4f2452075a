/* A condition without which a program can't go on. */
#ifndef MUST_H
#define MUST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                       \
	do {                                                                          \
		errno = 0;                                                            \
		if (!(x)) {                                                           \
			printf("WRONG %d: %s (%s)\n", __LINE__, #x, strerror(errno)); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

#endif
