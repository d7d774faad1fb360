// One member of a hashicorp/raft cluster (TCP transport, log in raft-wal, a map as its state machine), with the clients in
// the leader's process.
//
//	led                               whether this member leads
//	put CLIENTS SECONDS BYTES KEYS
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"kattu.test/rivals/lat"
)

type table struct{ values map[uint64][]byte }

func (t *table) Apply(l *raft.Log) interface{} {
	t.values[binary.LittleEndian.Uint64(l.Data)] = append([]byte(nil), l.Data[8:]...)
	return nil
}

type nothing struct{}

func (nothing) Persist(s raft.SnapshotSink) error { return s.Close() }
func (nothing) Release()                          {}

func (t *table) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (t *table) Restore(r io.ReadCloser) error       { return r.Close() }

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	id := flag.Int("id", 1, "from 1")
	dir := flag.String("dir", "", "data")
	addrs := flag.String("addrs", "", "of all members, separated by commas")
	flag.Parse()
	addresses := strings.Split(*addrs, ",")
	own := addresses[*id-1]
	settings := raft.DefaultConfig()
	settings.LocalID = raft.ServerID(own)
	settings.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	transport, err := raft.NewTCPTransport(own, nil, 3, 10*time.Second, os.Stderr)
	exitOn(err)
	snapshots, err := raft.NewFileSnapshotStore(*dir, 1, io.Discard)
	exitOn(err)
	folder := filepath.Join(*dir, "wal")
	exitOn(os.MkdirAll(folder, 0o755))
	log, err := wal.Open(folder)
	exitOn(err)
	node, err := raft.NewRaft(settings, &table{values: map[uint64][]byte{}}, log, log, snapshots, transport)
	exitOn(err)
	if *id == 1 {
		var servers []raft.Server
		for _, address := range addresses {
			servers = append(servers, raft.Server{ID: raft.ServerID(address), Address: raft.ServerAddress(address)})
		}
		exitOn(node.BootstrapCluster(raft.Configuration{Servers: servers}).Error())
	}
	lat.Serve(func(verb string, arguments []string) any {
		switch {
		case verb == "led":
			return node.State() == raft.Leader
		case verb == "put" && len(arguments) == 4:
			clients, _ := strconv.Atoi(arguments[0])
			seconds, _ := strconv.ParseFloat(arguments[1], 64)
			bytes, _ := strconv.Atoi(arguments[2])
			keys, _ := strconv.ParseUint(arguments[3], 10, 64)
			if keys == 0 {
				return lat.Refused("no keys")
			}
			return lat.Closed(clients, time.Duration(seconds*float64(time.Second)), func(number uint64) error {
				command := make([]byte, 8+bytes)
				binary.LittleEndian.PutUint64(command, lat.Scramble(number)%keys)
				return node.Apply(command, 5*time.Second).Error()
			})
		}
		return lat.Refused("unknown verb")
	})
	exitOn(node.Shutdown().Error())
}
