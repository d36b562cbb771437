/interface ethernet switch qos port
set [find] trust-l3=ignore
