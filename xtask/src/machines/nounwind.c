/*
 * What Rust's standard library asks of an unwinder (Itanium C++ ABI, "Exception Handling", 1.3 and
 * 1.6) in a program that ends when it panics: there are no frames. 5 is _URC_END_OF_STACK.
 */
int _Unwind_Backtrace(void *each, void *argument)
{
	(void)each;
	(void)argument;
	return 5;
}

unsigned long _Unwind_GetIP(void *context)
{
	(void)context;
	return 0;
}
