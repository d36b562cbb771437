"""idle.py ADDRESS PORT: connects, asks for keep-alives after a second of silence, says so, and is silent."""

import socket
import sys
import time

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    print("silent", flush=True)
    time.sleep(600)
