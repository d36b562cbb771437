# The print after the script (printed.txt) shows trust-l3=ignore on every port.
/interface ethernet switch qos port
set [find] trust-l3=ignore
