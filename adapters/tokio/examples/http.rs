//! HTTP over RDMA: [hyper](https://hyper.rs) serves and fetches pages over streams of this crate,
//! and over TCP for comparison. Both transports run the same code.
//!
//!     cargo run --release -p uverbs-tokio --example http                          both sides
//!     cargo run --release -p uverbs-tokio --example http server [ADDRESS:PORT]    one terminal
//!     cargo run --release -p uverbs-tokio --example http client ADDRESS:PORT      another one

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uverbs::Device;
use uverbs_streams::StreamOptions;
use uverbs_tokio::{RdmaListener, RdmaStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Limit of a connect and of a request.
const LIMIT: Duration = Duration::from_secs(10);
/// Limit of the server's wait for its client, which a person may start, and of a connection.
const VISIT: Duration = Duration::from_secs(60);
const PORT: u16 = 7480;

const SMALL: &[u8] = b"a small page";
const LARGE: usize = 8 << 20;
/// Requests of each page over each transport.
const SMALLS: u32 = 1000;
const LARGES: u32 = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // On a machine without RDMA devices: the software HCA, which other processes reach.
    let device = uverbs::device_or_softhca()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => both().await,
        ["server"] => server(&device, SocketAddr::new(address(&device)?, PORT)).await,
        ["server", at] => server(&device, at.parse()?).await,
        ["client", at] => client(&device, at.parse()?).await,
        _ => Err("usage: http [server [ADDRESS:PORT] | client ADDRESS:PORT]".into()),
    }
}

async fn both() -> Result<()> {
    let (here, there) = (uverbs::device("softhca0")?, uverbs::device("softhca1")?);
    let listener = listen(&there, SocketAddr::new(address(&there)?, 0))?;
    let at = listener.inner().local_addr()?;
    let ((), answered) = tokio::try_join!(client(&here, at), serve(listener))?;
    println!("server  answered {answered} requests");
    Ok(())
}

async fn server(device: &Device, at: SocketAddr) -> Result<()> {
    let listener = listen(device, at)?;
    println!("server  listens at {}", listener.inner().local_addr()?);
    println!("server  answered {} requests", serve(listener).await?);
    Ok(())
}

fn listen(device: &Device, at: SocketAddr) -> Result<RdmaListener> {
    Ok(RdmaListener::new(StreamOptions::new().on(device).listen(at)?)?)
}

/// Pages of the server, and how often they were asked for.
struct Site {
    large: Bytes,
    /// Address of the server's TCP listener.
    tcp: SocketAddr,
    answered: AtomicUsize,
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        let page = match request.uri().path() {
            "/small" => Bytes::from_static(SMALL),
            "/large" => self.large.clone(),
            "/tcp" => self.tcp.to_string().into(),
            _ => {
                let mut missing = Response::default();
                *missing.status_mut() = StatusCode::NOT_FOUND;
                return missing;
            }
        };
        Response::new(Full::new(page))
    }
}

/// Serves one client, over RDMA and over TCP, until it closes both connections. Counts requests.
async fn serve(listener: RdmaListener) -> Result<usize> {
    let tcp = match TcpListener::bind((listener.inner().local_addr()?.ip(), 0)).await {
        Ok(tcp) => tcp,
        // A software HCA inside of this process has an address that the host doesn't know.
        Err(_) => TcpListener::bind("127.0.0.1:0").await?,
    };
    let (at, answered) = (tcp.local_addr()?, AtomicUsize::new(0));
    let site = Arc::new(Site { large: large(), tcp: at, answered });
    let (stream, _) = timeout(VISIT, listener.accept()).await??;
    let over_rdma = tokio::spawn(serve_stream(stream, Arc::clone(&site)));
    let (stream, _) = timeout(VISIT, tcp.accept()).await??;
    stream.set_nodelay(true)?;
    serve_stream(stream, Arc::clone(&site)).await?;
    over_rdma.await??;
    Ok(site.answered.load(Ordering::Relaxed))
}

async fn serve_stream<S>(stream: S, site: Arc<Site>) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = service_fn(async |request| Ok::<_, Infallible>(site.answer(request).await));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    Ok(timeout(VISIT, connection).await??)
}

async fn client(device: &Device, at: SocketAddr) -> Result<()> {
    let options = StreamOptions::new().on(device).limit(LIMIT);
    let mut rdma = Client::new(RdmaStream::connect(&options, at).await?).await?;
    let tcp: SocketAddr = str::from_utf8(&rdma.get("/tcp").await?)?.parse()?;
    let stream = timeout(LIMIT, TcpStream::connect(tcp)).await??;
    stream.set_nodelay(true)?;
    let mut tcp = Client::new(stream).await?;
    let (over_rdma, over_tcp) = (rdma.measure().await?, tcp.measure().await?);
    println!("over       requests/s     MB/s");
    println!("---------  ----------  -------");
    for (name, rates) in [("RDMA", &over_rdma), ("TCP", &over_tcp)] {
        println!("{name:9}  {:10.1}  {:7.1}", rates.requests, rates.megabytes);
    }
    let requests = over_rdma.requests / over_tcp.requests;
    let megabytes = over_rdma.megabytes / over_tcp.megabytes;
    println!("RDMA/TCP   {requests:10.2}  {megabytes:7.2}");
    rdma.close().await?;
    tcp.close().await
}

/// Client's end of a connection, over any stream.
struct Client {
    sender: SendRequest<Empty<Bytes>>,
    /// Task that moves the connection's bytes.
    connection: JoinHandle<hyper::Result<()>>,
}

/// Rates per second.
struct Rates {
    requests: f64,
    megabytes: f64,
}

impl Client {
    async fn new<S>(stream: S) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = timeout(LIMIT, handshake(TokioIo::new(stream))).await??;
        Ok(Self { sender, connection: tokio::spawn(connection) })
    }

    /// Fetches a page.
    async fn get(&mut self, path: &str) -> Result<Bytes> {
        let request = Request::get(path).header(HOST, "rdma").body(Empty::new())?;
        let fetched = async {
            self.sender.ready().await?;
            let answer = self.sender.send_request(request).await?;
            match answer.status() {
                StatusCode::OK => Ok(answer.into_body().collect().await?.to_bytes()),
                status => Err(format!("GET {path}: {status}").into()),
            }
        };
        timeout(LIMIT, fetched).await?
    }

    /// Time of some requests for a page, which must be `expected`.
    async fn time(&mut self, path: &str, expected: &[u8], requests: u32) -> Result<f64> {
        let mut time = Duration::ZERO;
        for _ in 0..requests {
            let started = Instant::now();
            let page = self.get(path).await?;
            time += started.elapsed();
            if page != expected {
                return Err(format!("GET {path}: {} bytes, another page", page.len()).into());
            }
        }
        Ok(time.as_secs_f64())
    }

    async fn measure(&mut self) -> Result<Rates> {
        let requests = f64::from(SMALLS) / self.time("/small", SMALL, SMALLS).await?;
        let bytes = LARGE as f64 * f64::from(LARGES);
        let megabytes = bytes / 1e6 / self.time("/large", &large(), LARGES).await?;
        Ok(Rates { requests, megabytes })
    }

    async fn close(self) -> Result<()> {
        drop(self.sender);
        Ok(timeout(LIMIT, self.connection).await???)
    }
}

/// The large page: bytes whose order shows.
fn large() -> Bytes {
    (0..LARGE as u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// The device's first IP address.
fn address(device: &Device) -> Result<IpAddr> {
    Ok(*device.addresses()?.first().ok_or("the device has no IP address")?)
}
