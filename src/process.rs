//! For libraries over this one: forked children, and threads in programs that handle signals.

/// A `Drop` that posts asks it first:
///
/// ```
/// use uverbs::process::Process;
///
/// struct Farewell {
///     process: Process,
/// }
///
/// impl Drop for Farewell {
///     fn drop(&mut self) {
///         if self.process.is_current() {
///             // Post the last message: the queues are this process's.
///         }
///     }
/// }
///
/// let farewell = Farewell { process: Process::current() };
/// ```
///
#[doc(inline)]
pub use uverbs_core::memory::process::Process;
/// A thread that the program's signals never reach:
///
/// ```
/// use std::sync::mpsc::channel;
///
/// let (told, tells) = channel();
/// uverbs::process::start_thread("poller", move || told.send("it runs").unwrap())?;
/// assert_eq!(tells.recv(), Ok("it runs"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
#[doc(inline)]
pub use uverbs_core::thread::start as start_thread;
