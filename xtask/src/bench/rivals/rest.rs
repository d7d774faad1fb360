//! A cluster at rest: its CPU without clients, and the start of one of its members.
//!
//! Knows nothing of: loads.

use super::load::Timing;
use super::sample::{Figure, Sample};
use crate::bench::cluster::{Cluster, MEMBERS};
use crate::bench::meter::{self, Meter};
use crate::shell::Failure;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between an election, or a start, and rest.
pub const SETTLED: Duration = Duration::from_secs(3);
const START_LIMIT: Duration = Duration::from_secs(120);
/// Between two questions whether a member serves.
const PAUSE: Duration = Duration::from_millis(2);

/// CPU of all members, as a share of one core.
pub fn idle(pids: &[u32], timing: Timing) -> Sample {
    std::thread::sleep(SETTLED);
    let cpu_ns = || pids.iter().map(|pid| meter::cpu_ns(*pid)).sum::<u64>();
    let meter = Meter::start(pids);
    let before = cpu_ns();
    std::thread::sleep(Duration::from_secs(timing.seconds));
    let used_s = cpu_ns().saturating_sub(before) as f64 / 1e9;
    let reading = meter.stop();
    let mut sample = Sample::of(Figure::Busy, used_s / reading.wall_s * 100.0);
    sample.add(Figure::Others, reading.other_cores);
    sample
}

/// The same of three processes that exchange heartbeats and do nothing else.
pub fn heartbeats(timing: Timing) -> Result<Sample, Failure> {
    let program = super::super::example("heartbeats")?;
    let begin = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map(Process)
    };
    let (mut followers, mut addresses) = (Vec::new(), Vec::new());
    for _ in 1..MEMBERS {
        let mut follower = begin(&["follow"])?;
        let output = follower.0.stdout.take().ok_or_else(|| Failure::new("it has no output"))?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        addresses.push(address.trim().to_string());
        followers.push(follower);
    }
    let words: Vec<&str> = std::iter::once("lead").chain(addresses.iter().map(String::as_str)).collect();
    // Whichever ended would end the others: none is ended here before all are seen to run.
    let mut all = followers;
    all.push(begin(&words)?);
    let pids: Vec<u32> = all.iter().map(|process| process.0.id()).collect();
    let sample = idle(&pids, timing);
    for process in &mut all {
        if let Some(ended) = process.0.try_wait()? {
            return Err(Failure::new(format!("a process that sends heartbeats ended: {ended}")));
        }
    }
    Ok(sample)
}

/// Ends its process with itself.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops a follower, starts it again, and waits until it serves: it has replayed its log, and a leader answers it.
pub fn start(cluster: &mut Cluster) -> Result<Sample, Failure> {
    std::thread::sleep(SETTLED);
    let leader = cluster.leader().ok_or_else(|| Failure::new("the leader went away"))?;
    let follower = (leader + 1) % MEMBERS;
    let address: SocketAddr = cluster
        .address(follower)
        .parse()
        .map_err(|error| Failure::new(format!("{}: {error}", cluster.address(follower))))?;
    let begun = cluster.restart(follower)?;
    while !serves(address) {
        if START_LIMIT < begun.elapsed() {
            return Err(Failure::new(format!("a member does not serve after {START_LIMIT:?}")));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Sample::of(Figure::Start, begun.elapsed().as_secs_f64()))
}

/// Whether `/health` answers that the member is well: for both programs this reads linearizably.
fn serves(address: SocketAddr) -> bool {
    const LIMIT: Duration = Duration::from_secs(1);
    let asked = Instant::now();
    let answer = TcpStream::connect_timeout(&address, LIMIT).and_then(|mut stream| {
        stream.set_read_timeout(Some(LIMIT))?;
        let request = format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut line = [0; 12];
        stream.read_exact(&mut line)?;
        Ok(line)
    });
    asked.elapsed() < LIMIT && answer.is_ok_and(|line| line.ends_with(b" 200"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_member_serves_when_it_says_that_it_is_well() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let answers = ["503 Service Unavailable", "200 OK"];
        let served = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("asked");
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).expect("a request");
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).expect("heard");
            }
        });
        assert_eq!([serves(address), serves(address)], [false, true]);
        served.join().expect("two answers");
        assert!(!serves(address), "it has ended");
    }
}
