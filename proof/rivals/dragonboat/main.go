// One member of a dragonboat cluster (v4, one shard, a map as its state machine), with the clients in the leader's process.
//
//	led                             whether this member leads
//	fill  CLIENTS KEYS BYTES          writes each key, again if that failed
//	put   CLIENTS SECONDS BYTES KEYS
//	read  CLIENTS SECONDS BYTES KEYS  linearizable: ReadIndex
//	local CLIENTS SECONDS BYTES KEYS  from this member's own state: StaleRead
//
// Proposals are without client sessions (NoOPSession): a session of dragonboat's has one proposal under way. The log is in
// Pebble, dragonboat's default, or with -tan in Tan; either is synced before a proposal counts. Election timeout and heartbeat are etcd's: 1 s and 100 ms.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"kattu.test/rivals/lat"
)

const shard = 1

type table struct{ values map[uint64][]byte }

func (t *table) Update(e sm.Entry) (sm.Result, error) {
	t.values[binary.LittleEndian.Uint64(e.Cmd)] = append([]byte(nil), e.Cmd[8:]...)
	return sm.Result{Value: 1}, nil
}
func (t *table) Lookup(key interface{}) (interface{}, error) { return t.values[key.(uint64)], nil }
func (t *table) SaveSnapshot(io.Writer, sm.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}
func (t *table) RecoverFromSnapshot(io.Reader, []sm.SnapshotFile, <-chan struct{}) error { return nil }
func (t *table) Close() error                                                            { return nil }

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	id := flag.Uint64("id", 1, "from 1")
	dir := flag.String("dir", "", "data")
	addrs := flag.String("addrs", "", "of all members, separated by commas")
	useTan := flag.Bool("tan", false, "log in Tan instead of Pebble")
	flag.Parse()
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "raftpb", "config", "settings", "tan", "pebblekv", "raftdb", "order"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	addresses := strings.Split(*addrs, ",")
	members := map[uint64]dragonboat.Target{}
	for i, address := range addresses {
		members[uint64(i+1)] = address
	}
	host := config.NodeHostConfig{NodeHostDir: *dir, RTTMillisecond: 10, RaftAddress: addresses[*id-1]}
	if *useTan {
		host.Expert.LogDBFactory = tan.Factory
	}
	node, err := dragonboat.NewNodeHost(host)
	exitOn(err)
	replica := config.Config{ReplicaID: *id, ShardID: shard, ElectionRTT: 100, HeartbeatRTT: 10, CheckQuorum: true}
	exitOn(node.StartReplica(members, false, func(uint64, uint64) sm.IStateMachine {
		return &table{values: map[uint64][]byte{}}
	}, replica))

	put := func(key uint64, bytes int) error {
		within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		command := make([]byte, 8+bytes)
		binary.LittleEndian.PutUint64(command, key)
		_, err := node.SyncPropose(within, node.GetNoOPSession(shard), command)
		return err
	}
	read := func(key uint64, bytes int, local bool) error {
		var value interface{}
		var err error
		if local {
			value, err = node.StaleRead(shard, key)
		} else {
			within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			value, err = node.SyncRead(within, shard, key)
		}
		if err == nil && len(value.([]byte)) != bytes {
			err = errors.New("the value read has another length than the one written")
		}
		return err
	}
	lat.Serve(func(verb string, arguments []string) any {
		if verb == "led" {
			leader, _, known, _ := node.GetLeaderID(shard)
			return known && leader == *id
		}
		numbers := make([]float64, 4)
		for i := range numbers {
			if i < len(arguments) {
				numbers[i], _ = strconv.ParseFloat(arguments[i], 64)
			}
		}
		clients := int(numbers[0])
		if verb == "fill" {
			return lat.All(clients, uint64(numbers[1]), func(number uint64) (err error) {
				for attempt := 0; attempt < 100; attempt++ {
					if err = put(number, int(numbers[2])); err == nil {
						return nil
					}
					time.Sleep(20 * time.Millisecond)
				}
				return err
			})
		}
		span, bytes, keys := time.Duration(numbers[1]*float64(time.Second)), int(numbers[2]), uint64(numbers[3])
		if keys == 0 {
			return lat.Refused("no keys")
		}
		switch verb {
		case "put":
			return lat.Closed(clients, span, func(number uint64) error { return put(lat.Scramble(number)%keys, bytes) })
		case "read", "local":
			return lat.Closed(clients, span, func(number uint64) error { return read(lat.Scramble(number)%keys, bytes, verb == "local") })
		}
		return lat.Refused("unknown verb")
	})
	node.Close()
}
