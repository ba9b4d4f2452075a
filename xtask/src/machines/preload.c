/*
 * What QEMU's user mode lacks, preloaded there.
 *
 * MADV_DONTFORK is refused, and no test here depends on it: said to be done. MADV_POPULATE_* is
 * said to be done and isn't: refused as before Linux 5.14, which softhca is prepared for.
 * process_vm_readv and process_vm_writev are missing: for this process itself, a pipe does what
 * they do. QEMU checks the addresses of read and write.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define POPULATE_READ 22
#define POPULATE_WRITE 23

int madvise(void *at, size_t len, int advice)
{
	if (advice == MADV_DONTFORK)
		return 0;
	if (advice == POPULATE_READ || advice == POPULATE_WRITE) {
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_madvise, at, len, advice);
}

/* Bytes up to the first page that can't be accessed; -1 if there are none. */
static ssize_t copy(char *to, const char *from, size_t len, const char *remote)
{
	int ends[2];
	size_t done = 0;

	if (pipe(ends))
		return -1;
	while (done < len) {
		/* No further than the remote page, and than a pipe takes. */
		size_t room = PAGE - ((size_t)(remote + done) & (PAGE - 1));
		size_t part = len - done < room ? len - done : room;

		if (write(ends[1], from + done, part) != (ssize_t)part)
			break;
		if (read(ends[0], to + done, part) != (ssize_t)part)
			break;
		done += part;
	}
	close(ends[0]);
	close(ends[1]);
	if (done > 0 || len == 0)
		return done;
	errno = EFAULT;
	return -1;
}

/* Piece by piece, whatever the pieces are on either side. `back` is from local to remote. */
static ssize_t pieces(const struct iovec *local, unsigned long locals,
		      const struct iovec *remote, unsigned long remotes, int back)
{
	size_t done = 0, here = 0, there = 0;

	while (locals > 0 && remotes > 0) {
		size_t left = local->iov_len - here, other = remote->iov_len - there;
		size_t part = left < other ? left : other;
		char *mine = (char *)local->iov_base + here, *theirs = (char *)remote->iov_base + there;
		ssize_t copied = back ? copy(theirs, mine, part, theirs) : copy(mine, theirs, part, theirs);

		if (copied < 0)
			return done > 0 ? (ssize_t)done : -1;
		done += copied;
		if ((size_t)copied < part)
			return done;
		here += part;
		there += part;
		if (here == local->iov_len)
			local++, locals--, here = 0;
		if (there == remote->iov_len)
			remote++, remotes--, there = 0;
	}
	return done;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
			 const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	if (pid != getpid())
		return syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
	return pieces(local, locals, remote, remotes, 0);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
			  const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	if (pid != getpid())
		return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
	return pieces(local, locals, remote, remotes, 1);
}
