package gap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"holdfast/engine/cluster"
)

// Holdfast is this product, as the program at Binary.
type Holdfast struct{ Binary string }

// Name implements [Service].
func (h Holdfast) Name() string { return "Holdfast" }

// Command implements [Service].
func (h Holdfast) Command(i int, nodes []Node) []string {
	n := nodes[i]
	return []string{
		h.Binary, "serve", "--name", n.Name, "--data", n.Dir, "--listen", n.Client,
		"--peer-listen", n.Peer, "--initial-cluster", founders(nodes, ""), "--log-level", "warn",
	}
}

// founders is "name=address,…" of the nodes' peer ports.
func founders(nodes []Node, scheme string) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Name+"="+scheme+n.Peer)
	}
	return strings.Join(list, ",")
}

func clientAddresses(nodes []Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Client)
	}
	return strings.Join(list, ",")
}

// Status implements [Service].
func (h Holdfast) Status(ctx context.Context, n Node) (Status, error) {
	var st struct {
		Role, AppliedIndex string
		Ready              bool
	}
	if err := ask(ctx, "http://"+n.Client+"/holdfast.v1.LockService/GetStatus", &st); err != nil {
		return Status{}, err
	}
	applied, err := number(st.AppliedIndex)
	return Status{Leads: st.Role == "leader", Ready: st.Ready, Applied: applied}, err
}

// Open implements [Service].
func (h Holdfast) Open(ctx context.Context, nodes []Node) (Acquirer, error) {
	c, err := cluster.Dial(ctx, clientAddresses(nodes), &cluster.Options{TTL: sessionTTL, Label: "bench"})
	if err != nil {
		return nil, err
	}
	return holdfastClient{c}, nil
}

// sessionTTL is that of the one session that all workers share, of either
// service.
const sessionTTL = 15 * time.Second

type holdfastClient struct{ c *cluster.Client }

// Once implements [Acquirer].
func (h holdfastClient) Once(ctx context.Context, lock string, granted func()) error {
	g, err := h.c.Locker().Acquire(ctx, lock)
	if err != nil {
		return err
	}
	granted()
	return g.Release(ctx)
}

// Close implements [Acquirer].
func (h holdfastClient) Close() { _ = h.c.Close(context.Background()) }

// ask posts an empty request and reads the JSON of the answer.
func ask(ctx context.Context, url string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(answer)
}

// number reads a number that JSON has as text, so that it stays exact. It is
// left out when it is 0.
func number(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	return strconv.ParseUint(s, 10, 64)
}
