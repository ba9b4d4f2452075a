/* Preloaded, takes over the program's sockets and epoll sets as libvma does, and can serve none. */
#include <errno.h>

int socket(int family, int type, int protocol)
{
	(void)family, (void)type, (void)protocol;
	errno = EBADF;
	return -1;
}

int epoll_create1(int flags)
{
	(void)flags;
	errno = EBADF;
	return -1;
}
