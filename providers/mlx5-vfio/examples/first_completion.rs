//! From power-on to the first completion, without `uverbs::Device`. The book's chapter "A driver
//! without a kernel" follows this program in the server's log.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{Error, Function, Limits, LinkState, PAGE, Peer, Sge};

/// Limit of the wait for completions.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Error> {
    let Some(socket) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: first_completion SOCKET");
        std::process::exit(2);
    };
    // Initialization segment, command queue, pages, capabilities, event queue.
    let function = Function::open(VfioUser::connect(&socket)?, Limits::default())?;
    println!("the firmware has {} pages", function.pages());
    let lid = match function.port()?.link {
        LinkState::InfiniBand { lid, .. } => lid,
        _ => return Err(Error::Unsupported { what: "a port without LID".to_owned() }),
    };
    {
        let pd = function.alloc_pd()?;
        let region = pd.register(function.buffer(PAGE)?)?;
        let mut cq = function.create_cq(4)?;
        let mut qp = pd.create_qp(&cq, 3)?;
        // Connected to itself.
        qp.connect(Peer::new(qp.number(), lid))?;
        region.buffer().write(0, b"the first message")?;
        let iova = region.buffer().iova();
        qp.post_recv(Sge::new(region.key(), iova + 2048, 64))?;
        qp.post_send(Sge::new(region.key(), iova, 17))?;
        let start = Instant::now();
        let mut done = 0;
        while done < 2 && start.elapsed() < LIMIT {
            match cq.poll()? {
                Some(cqe) => {
                    done += 1;
                    println!("completion: opcode {:#x}, {} bytes", cqe.op_own >> 4, cqe.byte_cnt);
                }
                None => std::thread::yield_now(),
            }
        }
        let mut text = [0; 17];
        region.buffer().read(2048, &mut text)?;
        println!("received: {}", String::from_utf8_lossy(&text));
    }
    function.close()
}
