// Package lat is what the drivers share: a histogram of latencies, closed loops of clients, and a protocol of lines on
// standard input and output. Knows nothing of: consensus.
package lat

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const sub = 32 // buckets per power of two: a resolution of about 3 %

// Hist is a log-linear histogram of nanoseconds.
type Hist struct {
	buckets [60 * sub]uint64
	count   uint64
}

func bucketOf(nanos uint64) int {
	if nanos < sub {
		return int(nanos)
	}
	exponent := bits.Len64(nanos) - 6
	return (exponent+1)*sub + int(nanos>>uint(exponent)) - sub
}

func nanosOf(bucket int) uint64 {
	if bucket < sub {
		return uint64(bucket)
	}
	exponent := bucket/sub - 1
	return uint64(bucket%sub+sub) << uint(exponent)
}

func (h *Hist) add(d time.Duration) {
	h.buckets[bucketOf(uint64(d.Nanoseconds()))]++
	h.count++
}

func (h *Hist) merge(other *Hist) {
	for i := range h.buckets {
		h.buckets[i] += other.buckets[i]
	}
	h.count += other.count
}

// micros is the latency below which this share of all operations lies, in microseconds.
func (h *Hist) micros(share float64) float64 {
	wanted := uint64(share * float64(h.count))
	var passed uint64
	for i, count := range h.buckets {
		passed += count
		if wanted < passed {
			return float64(nanosOf(i)) / 1000
		}
	}
	return 0
}

// Result is one load.
type Result struct {
	Ops    uint64  `json:"ops"`
	Errors uint64  `json:"errors"`
	Secs   float64 `json:"seconds"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
}

// Closed runs clients, each with one operation under way, for a duration; operation gets a number that no other has.
func Closed(clients int, d time.Duration, operation func(number uint64) error) Result {
	end := time.Now().Add(d)
	return run(clients, func(uint64) bool { return time.Now().Before(end) }, operation)
}

// All runs the operations 0 to total - 1, each once, by so many clients.
func All(clients int, total uint64, operation func(number uint64) error) Result {
	return run(clients, func(number uint64) bool { return number < total }, operation)
}

func run(clients int, goesOn func(number uint64) bool, operation func(number uint64) error) Result {
	var group sync.WaitGroup
	hists := make([]*Hist, clients)
	var errors, next uint64
	begun := time.Now()
	for client := range hists {
		hist := &Hist{}
		hists[client] = hist
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				number := atomic.AddUint64(&next, 1) - 1
				if !goesOn(number) {
					return
				}
				start := time.Now()
				if err := operation(number); err != nil {
					if atomic.AddUint64(&errors, 1) == 1 {
						fmt.Fprintln(os.Stderr, "the first error:", err)
					}
					time.Sleep(time.Millisecond)
					continue
				}
				hist.add(time.Since(start))
			}
		}()
	}
	group.Wait()
	result := Result{Errors: errors, Secs: time.Since(begun).Seconds()}
	all := &Hist{}
	for _, hist := range hists {
		all.merge(hist)
	}
	if result.Ops = all.count; 0 < result.Ops {
		result.P50, result.P99 = all.micros(.5), all.micros(.99)
	}
	return result
}

// Scramble makes a number that looks random, the same for the same number. [Steele et al. 2014]
func Scramble(number uint64) uint64 {
	mixed := number + 0x9E3779B97F4A7C15
	mixed = (mixed ^ mixed>>30) * 0xBF58476D1CE4E5B9
	mixed = (mixed ^ mixed>>27) * 0x94D049BB133111EB
	return mixed ^ mixed>>31
}

// Serve answers lines "<verb> <arguments>" on standard input with lines "ANSWER <JSON>", until its end.
func Serve(answer func(verb string, arguments []string) any) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		text, err := json.Marshal(answer(words[0], words[1:]))
		if err != nil {
			text = []byte(`{"refused":"no JSON"}`)
		}
		fmt.Printf("ANSWER %s\n", text)
	}
}

// Refused is the answer to a line that is not understood or cannot be served.
func Refused(why string) any { return map[string]string{"refused": why} }
