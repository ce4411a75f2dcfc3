//! `--metrics-addr`: a few lines of HTTP/1.1 that show a run to Prometheus, and nothing else.
//!
//! One thread accepts, one more answers each connection, at most [`CONNECTIONS`] at a time and each for at most
//! [`DEADLINE`], whatever its client does or leaves undone. One that has answered waits for the next client, because
//! making a thread is half of what a scrape takes. The trainer is never waited for and never waits: metrics are atomics.
//! What they are is [`foxhunt_report::prometheus`]'s business.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use foxhunt_report::prometheus::{CONTENT_TYPE, RunMetrics};

/// Connections answered at a time; more are closed at once.
const CONNECTIONS: usize = 64;
/// How long a connection may take, from accepting to the last byte.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const HEAD_BYTES: usize = 8 << 10;
/// Most header lines of a request.
const HEADERS: usize = 64;

/// `9464` and `:9464` are ports on loopback; else `HOST:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    match text.to_socket_addrs() {
        Ok(mut found) => found.next().ok_or_else(|| "this host has no address".to_owned()),
        Err(error) => Err(format!("a port, or HOST:PORT: {error}")),
    }
}

/// Serves `metrics` on `address` until the process ends; the address served, which tells the port chosen for port 0.
///
/// # Errors
/// When the address cannot be had, for example because its port is in use.
pub(crate) fn serve(address: SocketAddr, metrics: RunMetrics) -> anyhow::Result<SocketAddr> {
    let failed = || format!("cannot serve metrics on {address}");
    let listener = TcpListener::bind(address).with_context(failed)?;
    let served = listener.local_addr().with_context(failed)?;
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || accept(&listener, &metrics))
        .with_context(failed)?;
    Ok(served)
}

fn accept(listener: &TcpListener, metrics: &RunMetrics) {
    let open = Arc::new(AtomicUsize::new(0));
    let (next, waiting) = Waiting::new();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of file handles, most likely: they come back as connections end.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = Place::take(&open) else { continue };
        if waiting.claim() {
            // The thread that was claimed holds the other end.
            let _ = next.send((stream, place));
            continue;
        }
        let (metrics, waiting) = (metrics.clone(), waiting.clone());
        // A thread that cannot be had is a connection that is closed.
        let _ = thread::Builder::new().name("metrics answer".to_owned()).spawn(move || {
            let mut given = Some((stream, place));
            while let Some((stream, place)) = given {
                // A client that went away is nobody's concern.
                let _ = answer(stream, &metrics);
                drop(place);
                given = waiting.next();
            }
        });
    }
}

type Connection = (TcpStream, Place);

/// Threads that have answered and wait for another connection: one, or now and then a few.
#[derive(Clone)]
struct Waiting {
    connections: Arc<Mutex<Receiver<Connection>>>,
    /// Threads that wait and are not claimed; each gets one connection.
    threads: Arc<AtomicUsize>,
}

impl Waiting {
    fn new() -> (Sender<Connection>, Self) {
        let (next, connections) = mpsc::channel();
        (next, Self { connections: Arc::new(Mutex::new(connections)), threads: Arc::default() })
    }

    /// Whether a thread waits, which then is the caller's to give a connection to.
    fn claim(&self) -> bool {
        self.threads
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |threads| threads.checked_sub(1))
            .is_ok()
    }

    /// Waits for a connection; none when enough threads wait already.
    fn next(&self) -> Option<Connection> {
        if self.threads.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.threads.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().ok()?.recv().ok()
    }
}

/// One of the connections there may be.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        // Made before the comparison, so that a refusal gives its place back as well.
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, metrics: &RunMetrics) -> io::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let response = match read_head(&mut stream, deadline)? {
        Some(head) => respond(&head, metrics),
        None => Response::text("400 Bad Request", "no HTTP request\n"),
    };
    let mut rest = &response.bytes()[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let written = stream.write(rest)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = &rest[written..];
    }
    Ok(())
}

/// Method and path of a request; none when it is not one.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Option<(String, String)>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let read = stream.read(&mut part)?;
        head.extend_from_slice(&part[..read]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                return Ok(request.method.zip(request.path).map(|(m, p)| (m.to_owned(), p.to_owned())));
            }
            Ok(httparse::Status::Partial) if read > 0 && head.len() < HEAD_BYTES => {}
            _ => return Ok(None),
        }
    }
}

/// Time until `deadline`.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
    /// Whether the body is sent, or only told of.
    with_body: bool,
}

impl Response {
    fn text(status: &'static str, body: &str) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self { status, content_type, body: body.to_owned(), with_body: true }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { status, content_type, body, .. } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            body.len()
        );
        if self.with_body {
            text += body;
        }
        text.into_bytes()
    }
}

fn respond((method, target): &(String, String), metrics: &RunMetrics) -> Response {
    if !matches!(method.as_str(), "GET" | "HEAD") {
        return Response::text("405 Method Not Allowed", "GET only\n");
    }
    // A target may be told whole, as to a proxy.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target.as_str(),
    };
    let mut response = match path.split('?').next().unwrap_or_default() {
        "/metrics" if !metrics.started() => {
            Response::text("503 Service Unavailable", "training has not started\n")
        }
        "/metrics" => match metrics.text() {
            Ok(body) => Response { status: "200 OK", content_type: CONTENT_TYPE, body, with_body: true },
            Err(error) => Response::text("500 Internal Server Error", &format!("{error}\n")),
        },
        "/healthz" if metrics.healthy() => Response::text("200 OK", "ok\n"),
        "/healthz" => {
            Response::text("503 Service Unavailable", "a number of the last epoch was not finite\n")
        }
        _ => Response::text("404 Not Found", "/metrics and /healthz\n"),
    };
    response.with_body = method == "GET";
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_loopback() {
        for text in ["9464", ":9464", "127.0.0.1:9464"] {
            assert_eq!(address(text).unwrap().to_string(), "127.0.0.1:9464");
        }
        assert_eq!(address("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        assert_eq!(address("[::1]:1").unwrap().to_string(), "[::1]:1");
        for wrong in ["", ":", "65536", "127.0.0.1", "localhost:", "-1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    fn ask(at: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_what_is_known_is_answered() {
        let at = serve(address("0").unwrap(), RunMetrics::default()).unwrap();
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET http://a:1/metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET http://a HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics?name[]=x HTTP/1.0\r\nAccept: */*\r\n\r\n", "200"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
            ("GET /healthz HTTP/1.1\r\n\r\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            ("\u{16}\u{3}\u{1}", "400"),
        ] {
            let answer = ask(at, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let length = format!("Content-Length: {}\r\n", body.len());
            assert!(request.starts_with("HEAD") == body.is_empty(), "{request:?}: {answer}");
            assert!(body.is_empty() || head.contains(&length), "{request:?}: {answer}");
        }
        // A head without end is cut off.
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(2 * HEAD_BYTES));
        let mut stream = TcpStream::connect(at).unwrap();
        let _ = stream.write_all(long.as_bytes());
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        assert!(text.is_empty() || text.starts_with(b"HTTP/1.1 400"));
    }

    /// A thread that has answered is given the next connection, and no second one waits beside it.
    #[test]
    fn one_thread_waits_for_one_connection() {
        let (next, waiting) = Waiting::new();
        assert!(!waiting.claim(), "none waits yet");
        let thread = thread::spawn({
            let waiting = waiting.clone();
            move || waiting.next().map(|(stream, _)| stream.local_addr().unwrap())
        });
        while waiting.threads.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(waiting.next().is_none(), "one is enough");
        assert!(waiting.claim() && !waiting.claim(), "it is claimed once");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (given, place) = (stream.local_addr().unwrap(), Place::take(&Arc::default()).unwrap());
        next.send((stream, place)).unwrap();
        assert_eq!(thread.join().unwrap(), Some(given));
        assert!(!waiting.claim(), "it waits no longer");
    }

    /// Clients that connect and say nothing, more than are answered at a time, hold nobody up for longer than the
    /// deadline, and below that number not at all.
    #[test]
    fn hanging_clients_do_not_matter() {
        let at = serve(address("0").unwrap(), RunMetrics::default()).unwrap();
        let scrape = || {
            let mut stream = TcpStream::connect(at).unwrap();
            let mut text = String::new();
            let sent = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            sent.and_then(|()| stream.read_to_string(&mut text))
                .map(|_| text.starts_with("HTTP/1.1 200"))
                .unwrap_or(false)
        };
        let mut hanging: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
        let start = Instant::now();
        assert!(scrape(), "answered beside {} hanging clients", hanging.len());
        assert!(start.elapsed() < DEADLINE);
        hanging.extend((0..2 * CONNECTIONS).map(|_| TcpStream::connect(at).unwrap()));
        while !scrape() {
            assert!(start.elapsed() < 4 * DEADLINE, "hanging clients are never let go");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_port_in_use_is_an_error_with_its_address() {
        let at = serve(address("0").unwrap(), RunMetrics::default()).unwrap();
        let error = format!("{:#}", serve(at, RunMetrics::default()).unwrap_err());
        assert!(error.contains(&at.to_string()) && error.contains("in use"), "{error}");
    }
}
