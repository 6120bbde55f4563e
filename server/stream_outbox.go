package server

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

const (
	// maxOutbox is how many bytes of answers may wait for a client that does
	// not read.
	maxOutbox = 16 << 20
	// maxChunk is about how many bytes go into one message.
	maxChunk = wire.MaxFrame / 4
)

// outbox holds the answers that wait to be written to one stream: those to
// keepalives first. It is bounded by bytes.
type outbox struct {
	signal chan struct{} // has room for one: "look"

	mu struct {
		sync.Mutex
		urgent   []*holdfastv1.ServerFrame
		ordinary []*holdfastv1.ServerFrame
		// pulses are the frames in urgent that can still take pulses, by the
		// frame they answer: all pulses that wait for one go out together.
		pulses map[uint64]*holdfastv1.KeepAlivesResponse
		bytes  int
		closed bool
	}
}

func (o *outbox) init() {
	o.signal = make(chan struct{}, 1)
	o.mu.pulses = make(map[uint64]*holdfastv1.KeepAlivesResponse)
}

func (o *outbox) wake() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// put queues a frame. It never blocks; false says that the outbox is full.
// What is put into a closed outbox is dropped.
func (o *outbox) put(f *holdfastv1.ServerFrame) bool {
	size := proto.Size(f)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return true
	}
	if o.mu.bytes += size; o.mu.bytes > maxOutbox {
		return false
	}
	o.mu.ordinary = append(o.mu.ordinary, f)
	o.wake()
	return true
}

// putPulse queues the answer to one session's keepalive, beside the others of
// the same frame that wait.
func (o *outbox) putPulse(id uint64, p *holdfastv1.SessionPulse) bool {
	size := proto.Size(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return true
	}
	if o.mu.bytes += size; o.mu.bytes > maxOutbox {
		return false
	}
	r := o.mu.pulses[id]
	if r == nil || len(r.Pulses) >= maxPulses {
		r = &holdfastv1.KeepAlivesResponse{}
		o.mu.pulses[id] = r
		o.mu.urgent = append(o.mu.urgent, &holdfastv1.ServerFrame{Id: id, Body: &holdfastv1.ServerFrame_KeepAlives{KeepAlives: r}})
	}
	r.Pulses = append(r.Pulses, p)
	if size > maxChunk/4 {
		delete(o.mu.pulses, id) // a large pulse takes no others along
	}
	o.wake()
	return true
}

// maxPulses is how many pulses one frame carries.
const maxPulses = 2000

// take waits until something is there, and takes all of it, what is urgent
// first. open is false once the outbox is closed: nothing comes after.
func (o *outbox) take() (frames []*holdfastv1.ServerFrame, open bool) {
	for {
		o.mu.Lock()
		frames, open = append(o.mu.urgent, o.mu.ordinary...), !o.mu.closed
		o.mu.urgent, o.mu.ordinary, o.mu.bytes = nil, nil, 0
		clear(o.mu.pulses)
		o.mu.Unlock()
		if len(frames) > 0 || !open {
			return frames, open
		}
		<-o.signal
	}
}

// close lets nothing more in. What waits is still taken.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.closed = true
	o.wake()
}

// cutFrames returns the frames of the next message, of about maxChunk bytes,
// and the rest.
func cutFrames(frames []*holdfastv1.ServerFrame) (chunk, rest []*holdfastv1.ServerFrame) {
	size := 0
	for i, f := range frames {
		if size += proto.Size(f); i > 0 && size > maxChunk {
			return frames[:i], frames[i:]
		}
	}
	return frames, nil
}
