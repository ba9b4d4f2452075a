/* Prints the rings of a device in this process as they are in memory. */
#ifndef DUMP_H
#define DUMP_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "must.h"

/* Bytes of a ring that are printed. */
#ifndef DUMPED
#define DUMPED 600
#endif

/* Each ring once, whose first words are not all zero. */
static inline void dump(void)
{
	static unsigned char bytes[DUMPED], none[DUMPED];
	unsigned long seen[64], inode;
	char line[512], *at;
	int count = 0, mem = open("/proc/self/mem", O_RDONLY);
	FILE *maps = fopen("/proc/self/maps", "r");
	MUST(maps && mem >= 0);
	while (fgets(line, sizeof line, maps)) {
		unsigned long start;
		int i, known = 0;
		if (!strstr(line, "uverbs-ring"))
			continue;
		start = strtoul(line, &at, 16);
		MUST(sscanf(at, "-%*x %*s %*x %*s %lu", &inode) == 1);
		for (i = 0; i < count; i++)
			known |= seen[i] == inode;
		if (known || count == 64)
			continue;
		seen[count++] = inode;
		if (pread(mem, bytes, sizeof bytes, start) != sizeof bytes || !memcmp(bytes, none, sizeof bytes))
			continue;
		printf("ring ");
		for (i = 0; i < (int)sizeof bytes; i++)
			printf("%02x", bytes[i]);
		printf("\n");
	}
	fclose(maps);
	close(mem);
}

#endif
