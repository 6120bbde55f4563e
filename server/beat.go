package server

// Beat counts the turns of the node's loop, at least one each tick. While it
// rises the node is at work; whoever watches over the process can ask.
func (s *Server) Beat() uint64 { return s.node.beat.Load() }
