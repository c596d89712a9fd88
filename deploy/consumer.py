"""stub"""
from collections.abc import Callable

from engine.messages import *
from engine.party import Party
from engine.sinks.consumer import Consumer


class ConsumerServer(Party):
    def __init__(self, make: Callable[[str], Consumer]) -> None:
        super().__init__("consumer"); self.make=make; self.fence: dict[str,int]={}
    def channel_lost(self, sender: str) -> None: pass
    def handle(self, sender: str, m: Message) -> None:
        if isinstance(m, FetchLast):
            self.addresses[sender]=m.address
            self.fence[m.barrier]=max(self.fence.get(m.barrier,0), m.incarnation)
            l=self.make(m.barrier).last(m.barrier, m.groups)
            self.send(sender, LastBundle(m.barrier, m.incarnation, l.blobs, l.t_last, l.checksum))
        elif isinstance(m, Bundle):
            if m.incarnation < self.fence.get(m.barrier,0): return
            c=self.make(m.barrier)
            if m.t_last > c.last(m.barrier, m.groups).t_last: c.deliver(m)
            self.send(sender, BundleStored(m.barrier, m.incarnation, m.t_last))
