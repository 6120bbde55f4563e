package core

// One method a command, which names its fields in the order of the encoding.
// Fields are only added at a new entry format.

// rest is the limit of a text within an entry: what is left of it.
func (x *codec) rest() int { return len(x.buf) }

func (x *codec) request(r *Request) {
	x.u32(&r.Lane, "lane")
	x.u64(&r.N)
}

func (x *codec) sessions(v *[]SessionID) {
	n := x.count(len(*v), x.listMost(len(*v)), "sessions")
	for i := 0; i < n && x.err == nil; i++ {
		var id SessionID
		if x.writing {
			id = (*v)[i]
		}
		x.session(&id)
		if x.reading() {
			*v = append(*v, id)
		}
	}
}

// listMost is the limit of a list within an entry: its items have at least a
// byte each.
func (x *codec) listMost(n int) int {
	if x.writing {
		return n
	}
	return len(x.buf)
}

func (x *codec) open(c *Open) {
	x.session(&c.ID)
	x.fixed(c.SecretHash[:])
	x.fixed(c.Instance[:])
	x.duration(&c.TTL)
	x.text(&c.Label, x.rest(), "label")
	x.text(&c.Host, x.rest(), "host")
}

func (x *codec) end(c *End) {
	x.session(&c.ID)
	x.flag(&c.Operator, "operator")
	x.text(&c.By, x.rest(), "by")
}

func (x *codec) suspect(c *Suspect) {
	x.signed((*int64)(&c.Since))
	x.sessions(&c.Sessions)
}

func (x *codec) clear(c *Clear) { x.sessions(&c.Sessions) }

func (x *codec) expire(c *Expire) {
	x.session(&c.ID)
	x.signed((*int64)(&c.Since))
}

func (x *codec) acquire(c *Acquire) {
	x.session(&c.Session)
	x.request(&c.Request)
	x.text(&c.Lock, x.rest(), "lock")
	x.flag(&c.Shared, "shared")
	x.flag(&c.Try, "try")
	x.u32(&c.Limit, "limit")
	x.value(&c.Value, x.rest(), "value")
	x.duration(&c.LockDelay)
	x.duration(&c.OncePer)
	x.flag(&c.RetryFailed, "retry-failed")
	x.duration(&c.MaxHold)
}

func (x *codec) cancel(c *Cancel) {
	x.session(&c.Session)
	x.request(&c.Request)
}

func (x *codec) release(c *Release) {
	x.session(&c.Session)
	x.u64(&c.Grant)
	x.flag(&c.Failed, "failed")
}

func (x *codec) revoke(c *Revoke) {
	x.text(&c.Lock, x.rest(), "lock")
	x.u64(&c.Grant)
	x.flag(&c.Now, "now")
	x.flag(&c.Free, "free")
	x.u8((*uint8)(&c.Cause), 255, "cause")
	x.text(&c.By, x.rest(), "by")
}

func (x *codec) reopen(c *Reopen) {
	x.text(&c.Lock, x.rest(), "lock")
	x.u64((*uint64)(&c.Closing))
}

func (x *codec) put(c *Put) {
	x.session(&c.Session)
	x.request(&c.Request)
	x.text(&c.Lock, x.rest(), "lock")
	x.value(&c.Value, x.rest(), "value")
	x.flag(&c.Conditional, "conditional")
	x.u64((*uint64)(&c.IfRevision))
	x.flag(&c.Bind, "bind")
	x.u64(&c.Token)
}

func (x *codec) delete(c *Delete) {
	x.session(&c.Session)
	x.request(&c.Request)
	x.text(&c.Lock, x.rest(), "lock")
	x.flag(&c.Conditional, "conditional")
	x.u64((*uint64)(&c.IfRevision))
	x.u64(&c.Token)
}

func (x *codec) raiseEpoch(c *RaiseEpoch) {
	epoch := uint64(c.Epoch)
	x.below(&epoch, 1<<16-1, "epoch")
	c.Epoch = uint16(epoch)
	x.u64(&c.Incarnation)
	x.fixed(c.NewDomain[:])
}

func (x *codec) setVersion(c *SetVersion) { x.u32(&c.Version, "version") }

func (x *codec) membersCommand(c *Members) {
	x.members(&c.Members, x.listMost(len(c.Members)), x.rest())
	x.removed(&c.Removed, x.listMost(len(c.Removed)))
}

func (x *codec) members(v *[]Member, most, text int) {
	n := x.count(len(*v), most, "members")
	for i := 0; i < n && x.err == nil; i++ {
		var m Member
		if x.writing {
			m = (*v)[i]
		}
		x.u64(&m.ID)
		x.text(&m.Name, text, "member's name")
		x.text(&m.ClientAddr, text, "member's client address")
		x.text(&m.PeerAddr, text, "member's peer address")
		x.flag(&m.Learner, "learner")
		if x.reading() {
			*v = append(*v, m)
		}
	}
}

func (x *codec) removed(v *[]uint64, most int) {
	n := x.count(len(*v), most, "removed members")
	for i := 0; i < n && x.err == nil; i++ {
		var id uint64
		if x.writing {
			id = (*v)[i]
		}
		x.u64(&id)
		if x.reading() {
			*v = append(*v, id)
		}
	}
}
