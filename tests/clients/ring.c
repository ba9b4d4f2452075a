/* Messages around a ring of MPI's processes, a sum of all, and a one-sided write. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 18 };

int main(int argc, char **argv)
{
	int rank, count, sum = 0, one = 1, round, i;
	int *out = malloc(SIZE * sizeof *out), *in = malloc(SIZE * sizeof *in);
	int *window;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &count);
	for (round = 0; round < 20; round++) {
		int size = round % 2 ? SIZE : 10;
		int next = (rank + 1) % count, last = (rank + count - 1) % count;

		for (i = 0; i < size; i++)
			out[i] = rank * 1000 + round + i;
		MPI_Sendrecv(out, size, MPI_INT, next, round, in, size, MPI_INT, last, round,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (i = 0; i < size; i++)
			if (in[i] != last * 1000 + round + i)
				MPI_Abort(MPI_COMM_WORLD, 3);
	}
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Win_allocate(sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&rank, 1, MPI_INT, (rank + 1) % count, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	if (*window != (rank + count - 1) % count)
		MPI_Abort(MPI_COMM_WORLD, 4);
	MPI_Win_free(&win);
	if (!rank)
		printf("sum %d ok\n", sum);
	MPI_Finalize();
	return sum == count ? 0 : 5;
}
