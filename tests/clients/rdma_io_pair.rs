//! Bytes echoed over each transport of the crate rdma-io: `rdma_io_pair server` or
//! `rdma_io_pair client`.

use std::net::SocketAddr;

use rdma_io::async_cm::AsyncCmListener;
use rdma_io::async_stream::AsyncRdmaStream;
use rdma_io::credit_ring_transport::CreditRingConfig;
use rdma_io::read_ring_transport::ReadRingConfig;
use rdma_io::send_recv_transport::SendRecvConfig;
use rdma_io::transport::TransportBuilder;

type Any = Box<dyn std::error::Error>;

const SERVER: [u8; 4] = [10, 9, 0, 1];
const SIZE: usize = 100_000;

async fn serve(port: u16, config: impl TransportBuilder) -> Result<(), Any> {
    let listener = AsyncCmListener::bind(&SocketAddr::from((SERVER, port)))?;
    let mut stream = AsyncRdmaStream::new(config.accept(&listener).await?);
    let mut buffer = [0; 4096];
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..len]).await?;
    }
}

async fn ask(port: u16, config: impl TransportBuilder) -> Result<(), Any> {
    let server = SocketAddr::from((SERVER, port));
    let transport = loop {
        match config.connect(&server).await {
            Ok(transport) => break transport,
            Err(why) => eprintln!("again: {why}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let mut stream = AsyncRdmaStream::new(transport);
    let sent: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    for part in sent.chunks(1000) {
        stream.write_all(part).await?;
        let mut back = Vec::new();
        let mut buffer = [0; 4096];
        while back.len() < part.len() {
            let len = stream.read(&mut buffer).await?;
            assert_ne!(len, 0, "the stream ended");
            back.extend_from_slice(&buffer[..len]);
        }
        assert_eq!(back, part);
    }
    stream.shutdown().await?;
    Ok(())
}

async fn run(is_server: bool) -> Result<(), Any> {
    let (messages, credits, reads) =
        (SendRecvConfig::stream(), CreditRingConfig::datagram(), ReadRingConfig::datagram());
    if is_server {
        serve(7001, messages).await?;
        serve(7002, credits).await?;
        return serve(7003, reads).await;
    }
    ask(7001, messages).await?;
    println!("echoed by SEND");
    ask(7002, credits).await?;
    println!("echoed by WRITE with credits");
    ask(7003, reads).await?;
    println!("echoed by WRITE and READ");
    Ok(())
}

fn main() -> Result<(), Any> {
    let is_server = std::env::args().nth(1).as_deref() == Some("server");
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(is_server))
}
